#include "text/internal/protobuf_reader.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

const char* name_of_type(uint8_t type) {
  switch (type) {
    case 0: return "a number";
    case 1: return "8 bytes";
    case 2: return "a string";
    case 5: return "4 bytes";
    default: return "nothing known";
  }
}

}  // namespace

void ProtobufReader::fail(const std::string& complaint) const {
  throw UserError(concat("'", where_, "' at byte ", offset_ + field_start_, ": ", complaint), ExitCode::kBadData);
}

uint64_t ProtobufReader::varint(const char* what) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ == bytes_.size()) fail(concat("the file ends inside ", what));
    const auto byte = static_cast<uint8_t>(bytes_[at_++]);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  fail(concat(what, " has more than 10 bytes"));
}

std::string_view ProtobufReader::take(uint64_t size, const char* what) {
  const size_t left = bytes_.size() - at_;
  if (size > left) fail(concat("expected ", size, " bytes of ", what, ", ", left, " are left"));
  const std::string_view taken = bytes_.substr(at_, static_cast<size_t>(size));
  payload_start_ = at_;
  at_ += static_cast<size_t>(size);
  return taken;
}

bool ProtobufReader::next() {
  field_start_ = at_;
  if (at_ == bytes_.size()) return false;
  const uint64_t tag = varint("a field's number");
  type_ = static_cast<uint8_t>(tag & 7);
  if (tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF) fail(concat("expected a field number from 1 on, found ", tag >> 3));
  field_ = static_cast<uint32_t>(tag >> 3);
  switch (type_) {
    case kVarint: number_ = varint("a number"); return true;
    case kFixed64: payload_ = take(8, "a number"); return true;
    case kFixed32: payload_ = take(4, "a number"); return true;
    case kBytes: payload_ = take(varint("a length"), "a field"); return true;
    default: fail(concat("field ", field_, " has wire type ", static_cast<int>(type_), ", expected 0, 1, 2 or 5"));
  }
}

void ProtobufReader::expect(WireType type, const char* what) const {
  if (type_ == type) return;
  fail(concat("field ", field_, " (", what, ") holds ", name_of_type(type_), ", expected ", name_of_type(type)));
}

std::string_view ProtobufReader::bytes(const char* what) const {
  expect(kBytes, what);
  return payload_;
}

std::string ProtobufReader::text(const char* what) const {
  const std::string_view found = bytes(what);
  const size_t valid = valid_utf8_prefix(found);
  if (valid != found.size()) fail(concat("field ", field_, " (", what, ") is not UTF-8 from its byte ", valid, " on"));
  return std::string(found);
}

ProtobufReader ProtobufReader::message(const char* what) const {
  return ProtobufReader(bytes(what), where_, offset_ + payload_start_);
}

int64_t ProtobufReader::whole_number(const char* what) const {
  expect(kVarint, what);
  return static_cast<int64_t>(number_);
}

float ProtobufReader::number(const char* what) const {
  expect(kFixed32, what);
  uint32_t bits;
  std::memcpy(&bits, payload_.data(), sizeof bits);
  return std::bit_cast<float>(bits);
}

}  // namespace espalier::text::internal
