#include "store/internal/zip_writer.h"

#include <algorithm>

#include "base/error.h"
#include "store/internal/zip_file.h"

namespace espalier::store {
namespace {

constexpr int64_t kRecordAlignment = 64;
constexpr int64_t kNotIn32Bits = 0xffffffff;
constexpr uint16_t kUtf8Names = 1 << 11;
constexpr int64_t kCrcInHeader = 14;

void put(std::string& bytes, int num_bytes, int64_t value) {
  for (int byte = 0; byte < num_bytes; ++byte) bytes.push_back(static_cast<char>(value >> (8 * byte)));
}

int64_t in_32_bits(int64_t value) { return std::min(value, kNotIn32Bits); }

}  // namespace

void ZipWriter::add(const std::string& name, int64_t size, const std::function<void(const ByteSink&)>& produce) {
  Entry entry = {name, output_.position(), size};
  std::string extra;
  if (size >= kNotIn32Bits) put(extra, 2, 1), put(extra, 2, 16), put(extra, 8, size), put(extra, 8, size);
  const int64_t unpadded = entry.offset + 30 + static_cast<int64_t>(name.size() + extra.size()) + 4;
  const int64_t padding = (kRecordAlignment - unpadded % kRecordAlignment) % kRecordAlignment;
  extra += "FB";
  put(extra, 2, padding);
  extra.append(static_cast<size_t>(padding), 'Z');

  std::string header;
  put(header, 4, 0x04034b50), put(header, 2, size >= kNotIn32Bits ? 45 : 20), put(header, 2, kUtf8Names);
  put(header, 2, 0), put(header, 4, 0);  // stored; no time
  put(header, 4, 0), put(header, 4, in_32_bits(size)), put(header, 4, in_32_bits(size));
  put(header, 2, static_cast<int64_t>(name.size())), put(header, 2, static_cast<int64_t>(extra.size()));
  header += name + extra;
  output_.write(header.data(), header.size());

  const int64_t begin = output_.position();
  produce([&](const void* data, size_t bytes) {
    entry.crc = crc32(data, bytes, entry.crc);
    output_.write(data, bytes);
  });
  ESPALIER_CHECK(output_.position() - begin == size, name);
  output_.write_at(&entry.crc, sizeof entry.crc, entry.offset + kCrcInHeader);
  entries_.push_back(std::move(entry));
}

void ZipWriter::add(const std::string& name, const std::string& content) {
  add(name, static_cast<int64_t>(content.size()), [&](const ByteSink& sink) { sink(content.data(), content.size()); });
}

void ZipWriter::finish() {
  const int64_t offset = output_.position();
  std::string bytes;
  for (const Entry& entry : entries_) {
    std::string extra;
    if (entry.size >= kNotIn32Bits) put(extra, 8, entry.size), put(extra, 8, entry.size);
    if (entry.offset >= kNotIn32Bits) put(extra, 8, entry.offset);
    std::string field;
    if (!extra.empty()) put(field, 2, 1), put(field, 2, static_cast<int64_t>(extra.size()));
    field += extra;
    put(bytes, 4, 0x02014b50), put(bytes, 2, 45), put(bytes, 2, extra.empty() ? 20 : 45), put(bytes, 2, kUtf8Names);
    put(bytes, 2, 0), put(bytes, 4, 0);
    put(bytes, 4, entry.crc), put(bytes, 4, in_32_bits(entry.size)), put(bytes, 4, in_32_bits(entry.size));
    put(bytes, 2, static_cast<int64_t>(entry.name.size())), put(bytes, 2, static_cast<int64_t>(field.size()));
    put(bytes, 2, 0), put(bytes, 2, 0), put(bytes, 2, 0), put(bytes, 4, 0);
    put(bytes, 4, in_32_bits(entry.offset));
    bytes += entry.name + field;
  }
  const auto count = static_cast<int64_t>(entries_.size()), size = static_cast<int64_t>(bytes.size());
  // The zip64 end and its locator, always, as torch does.
  put(bytes, 4, 0x06064b50), put(bytes, 8, 44), put(bytes, 2, 45), put(bytes, 2, 45), put(bytes, 4, 0);
  put(bytes, 4, 0), put(bytes, 8, count), put(bytes, 8, count), put(bytes, 8, size), put(bytes, 8, offset);
  put(bytes, 4, 0x07064b50), put(bytes, 4, 0), put(bytes, 8, offset + size), put(bytes, 4, 1);
  put(bytes, 4, 0x06054b50), put(bytes, 2, 0), put(bytes, 2, 0), put(bytes, 2, std::min<int64_t>(count, 0xffff));
  put(bytes, 2, std::min<int64_t>(count, 0xffff)), put(bytes, 4, in_32_bits(size)), put(bytes, 4, in_32_bits(offset));
  put(bytes, 2, 0);
  output_.write(bytes.data(), bytes.size());
}

}  // namespace espalier::store
