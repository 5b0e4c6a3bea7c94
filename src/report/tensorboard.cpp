#include "report/tensorboard.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/host_name.h"

namespace espalier::report {
namespace {

// Protobuf wire format: only what Event needs (conventions: Event{1 wall_time, 2 step, 3 file_version, 5 summary},
// Summary{1 value}, Value{1 tag, 2 simple_value, 8 tensor, 9 metadata}, TensorProto{1 dtype, 2 shape, 8 string_val}).
enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
void put_key(std::string& out, int field, WireType type) { put_varint(out, static_cast<uint64_t>(field) << 3 | type); }

template <class Number>
void put_raw(std::string& out, Number value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}
void put_bytes(std::string& out, int field, const std::string& bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_at(int64_t x) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string event;
  put_key(event, 1, kFixed64);
  put_raw(event, now);
  put_key(event, 2, kVarint);
  put_varint(event, static_cast<uint64_t>(x));
  return event;
}

uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::filesystem::path new_event_file(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    throw UserError(concat("cannot create the folder '", directory.string(), "' for TensorBoard: ", error.message(),
                           ". Give --tensorboard-dir one that can be created and written to."),
                    ExitCode::kCannotCreate);
  static std::atomic<int> writers{0};
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return directory / format_printf("events.out.tfevents.%010lld.%s.%d.%d", static_cast<long long>(now),
                                   host_name().c_str(), getpid(), writers++);
}

std::string record_of(const std::string& event) {
  std::string length;
  put_raw(length, static_cast<uint64_t>(event.size()));
  std::string record = length;
  put_raw(record, masked_crc(length));
  record += event;
  put_raw(record, masked_crc(event));
  return record;
}

// The first of a file.
std::string version_event() {
  std::string event = event_at(0);
  put_bytes(event, 3, "brain.Event:2");
  return event;
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& directory)
    : file_(new_event_file(directory), record_of(version_event())) {}

void TensorBoardWriter::add_scalar(const std::string& tag, double value, int64_t x) {
  std::string entry;
  put_bytes(entry, 1, tag);
  put_key(entry, 2, kFixed32);
  put_raw(entry, static_cast<float>(value));
  std::string summary, event = event_at(x);
  put_bytes(summary, 1, entry);
  put_bytes(event, 5, summary);
  file_.append(record_of(event));
}

void TensorBoardWriter::add_text(const std::string& tag, const std::string& text, int64_t x) {
  constexpr int kStringType = 7;  // DT_STRING
  std::string dimension, shape, tensor, plugin, metadata, entry, summary;
  put_key(dimension, 1, kVarint);
  put_varint(dimension, 1);
  put_bytes(shape, 2, dimension);
  put_key(tensor, 1, kVarint);
  put_varint(tensor, kStringType);
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, text);
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_bytes(entry, 1, tag + "/text_summary");
  put_bytes(entry, 8, tensor);
  put_bytes(entry, 9, metadata);
  put_bytes(summary, 1, entry);
  std::string event = event_at(x);
  put_bytes(event, 5, summary);
  file_.append(record_of(event));
}

}  // namespace espalier::report
