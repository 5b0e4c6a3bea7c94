#include "data/index_array.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/file.h"
#include "base/hash.h"
#include "data/internal/large_memory.h"

namespace espalier::data {
namespace {

// The header as np.save pads it: magic, version 1.0, length, a Python dictionary, blanks to a multiple of 64 bytes.
std::string npy_header(IndexArray::Type type, int64_t rows, int64_t columns) {
  constexpr size_t kAlignment = 64, kPrefixBytes = 10;
  const char* descr = type == IndexArray::Type::kInt32 ? "<i4" : type == IndexArray::Type::kUint32 ? "<u4" : "<i8";
  const std::string shape = columns == 1 ? concat("(", rows, ",)") : concat("(", rows, ", ", columns, ")");
  std::string text = concat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape, ", }");
  const size_t unpadded = kPrefixBytes + text.size() + 1;
  text.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string header = "\x93NUMPY";
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return header + text;
}

size_t bytes_per_value(IndexArray::Type type) { return type == IndexArray::Type::kInt64 ? 8 : 4; }

// Room on the disk for what is written to a new file: with it the system takes a third less time to take the content.
// Without it a write says what is wrong.
void reserve_room(const std::filesystem::path& path, size_t bytes) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  static_cast<void>(::fallocate(descriptor, 0, 0, static_cast<off_t>(bytes)));
  ::close(descriptor);
}

}  // namespace

IndexArray::IndexArray(Type type, int64_t rows, int64_t columns) : type_(type), rows_(rows), columns_(columns) {
  data_ = internal::large_memory(size_bytes());
}

size_t IndexArray::size_bytes() const { return static_cast<size_t>(size()) * bytes_per_value(type_); }

int64_t IndexArray::rows_of_npy(const std::filesystem::path& path, Type type, int64_t columns) {
  const auto header = static_cast<int64_t>(npy_header(type, 1, columns).size());  // padded: as long for any rows
  std::error_code missing;                                                        // which map_npy() reports
  const std::uintmax_t bytes = std::filesystem::file_size(path, missing);
  if (missing || static_cast<int64_t>(bytes) < header) return 0;
  return (static_cast<int64_t>(bytes) - header) / (columns * static_cast<int64_t>(bytes_per_value(type)));
}

uint64_t IndexArray::write_npy(const std::filesystem::path& path) const {
  constexpr size_t kPiece = size_t{1} << 19;  // copied by the system from the cache, where the checksum brought it
  const std::string header = npy_header(type_, rows_, columns_);
  OutputFile file(path);
  reserve_room(path, header.size() + size_bytes());
  file.write(header.data(), header.size());
  Hasher hasher;
  for (size_t at = 0; at < size_bytes(); at += kPiece) {
    const uint8_t* const piece = static_cast<const uint8_t*>(data_.get()) + at;
    const size_t bytes = std::min(kPiece, size_bytes() - at);
    hasher.update(piece, bytes);
    file.write(piece, bytes);
  }
  file.close();
  return hasher.digest();
}

IndexArray IndexArray::map_npy(const std::filesystem::path& path, Type type, int64_t rows, int64_t columns) {
  auto file = std::make_shared<MappedFile>(path);
  const std::string header = npy_header(type, rows, columns);
  IndexArray array;
  array.type_ = type, array.rows_ = rows, array.columns_ = columns;
  const size_t expected = header.size() + array.size_bytes();
  if (file->size() != expected)
    throw UserError(concat("'", path.string(), "': expected ", expected, " bytes, found ", file->size()),
                    ExitCode::kBadData);
  if (std::memcmp(file->data(), header.data(), header.size()) != 0)
    throw UserError(concat("'", path.string(), "': the header is not that of ", rows, " x ", columns, " numbers"),
                    ExitCode::kBadData);
  // The mapping is read-only; visit() on such an array is for reading.
  array.data_ = std::shared_ptr<void>(file, const_cast<uint8_t*>(file->data()) + header.size());
  return array;
}

}  // namespace espalier::data
