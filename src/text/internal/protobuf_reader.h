// The fields of a protobuf message, one after another, without a schema: what is in the file, with its offset.
//
//   for (ProtobufReader reader(bytes, path); reader.next();) {
//     if (reader.field() == 1) name = reader.text();
//   }
//
// A UserError names the file, the byte, what was expected and what was found. Unknown fields are the caller's to skip:
// next() skips what was not taken.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace espalier::text::internal {

class ProtobufReader {
 public:
  // `bytes` must outlive the reader; they are at `offset` of the file that `where` names.
  ProtobufReader(std::string_view bytes, std::string where, size_t offset = 0)
      : bytes_(bytes), where_(std::move(where)), offset_(offset) {}

  // Reads the next field whole; false at the end of the message.
  bool next();
  uint32_t field() const { return field_; }

  // The value of the field. A field of another wire type is an error that names it as `what`.
  std::string_view bytes(const char* what) const;
  std::string text(const char* what) const;  // valid UTF-8
  ProtobufReader message(const char* what) const;
  int64_t whole_number(const char* what) const;  // int32, int64 and enumerations
  bool flag(const char* what) const { return whole_number(what) != 0; }
  float number(const char* what) const;

  // "WHERE at byte N: COMPLAINT", N being where the field begins.
  [[noreturn]] void fail(const std::string& complaint) const;

 private:
  enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  uint64_t varint(const char* what);
  std::string_view take(uint64_t size, const char* what);
  void expect(WireType type, const char* what) const;

  std::string_view bytes_;
  std::string where_;
  size_t offset_;  // of bytes_ in the file
  size_t at_ = 0, field_start_ = 0, payload_start_ = 0;
  uint32_t field_ = 0;
  uint8_t type_ = 0;
  uint64_t number_ = 0;
  std::string_view payload_;
};

}  // namespace espalier::text::internal
