#include "curate/digests.h"

#include "base/error.h"

namespace espalier::curate {

void Digests::append_number(uint64_t number, std::string& bytes) {
  constexpr uint64_t kMore = 0x80;
  for (; number >= kMore; number >>= 7) bytes += static_cast<char>(number | kMore);
  bytes += static_cast<char>(number);
}

uint64_t Digests::read_number(std::string_view& bytes) {
  uint64_t number = 0;
  for (int shift = 0;; shift += 7) {
    ESPALIER_CHECK(!bytes.empty() && shift < 64, "digests end inside a number");
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    number |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return number;
  }
}

void Digests::add(size_t part, int64_t number, std::string_view digest) {
  Part& to = parts_[part];
  ESPALIER_CHECK(number >= to.last, number, " after ", to.last);
  if (to.bytes.empty()) to.first = number;
  append_number(static_cast<uint64_t>(number - to.last), to.bytes);
  append_number(digest.size(), to.bytes);
  to.bytes += digest;
  to.last = number;
}

void Digests::append(const Digests& later) {
  for (size_t part = 0; part < parts_.size(); ++part) {
    Part& to = parts_[part];
    const Part& from = later.parts_[part];
    if (from.bytes.empty()) continue;
    ESPALIER_CHECK(from.first >= to.last, from.first, " after ", to.last);
    if (to.bytes.empty()) to.first = from.first;
    std::string_view rest = from.bytes;
    read_number(rest);
    append_number(static_cast<uint64_t>(from.first - to.last), to.bytes);
    to.bytes += rest;
    to.last = from.last;
  }
}

}  // namespace espalier::curate
