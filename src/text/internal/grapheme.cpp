#include "text/internal/grapheme.h"

#include <algorithm>

#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

constexpr uint32_t kExtend = 1, kSpacingMark = 2, kPrepend = 4, kControl = 8, kHangulL = 16, kHangulV = 32,
                   kHangulT = 64, kPicture = 128, kConsonant = 256, kLinker = 512, kConjunctExtend = 1024;
// Not in the table.
constexpr uint32_t kJoiner = 1 << 16, kCarriageReturn = 1 << 17, kLineFeed = 1 << 18, kHangulLv = 1 << 19,
                   kHangulLvt = 1 << 20;

uint32_t flags_of(char32_t code) {
  if (code < 0x80) {
    if (code == '\r') return kControl | kCarriageReturn;
    if (code == '\n') return kControl | kLineFeed;
    return code < 0x20 || code == 0x7F ? kControl : 0;
  }
  if (code == 0x200D) return kJoiner | kConjunctExtend;
  if (code >= 0xAC00 && code <= 0xD7A3) return (code - 0xAC00) % 28 == 0 ? kHangulLv : kHangulLvt;
  const GraphemeRange* end = kGraphemeRanges + kGraphemeRangesSize;
  const GraphemeRange* after = std::upper_bound(
      kGraphemeRanges, end, code, [](char32_t value, const GraphemeRange& range) { return value < range.first; });
  return after != kGraphemeRanges && code <= after[-1].last ? after[-1].flags : 0;
}

// The rules GB3 to GB11 of Unicode's annex 29.
class Joiner {
 public:
  explicit Joiner(uint32_t first) { take(first); }
  bool joins(uint32_t next) const {
    if ((last_ & kCarriageReturn) != 0 && (next & kLineFeed) != 0) return true;
    if (((last_ | next) & kControl) != 0) return false;
    if ((last_ & kHangulL) != 0 && (next & (kHangulL | kHangulV | kHangulLv | kHangulLvt)) != 0) return true;
    if ((last_ & (kHangulLv | kHangulV)) != 0 && (next & (kHangulV | kHangulT)) != 0) return true;
    if ((last_ & (kHangulLvt | kHangulT)) != 0 && (next & kHangulT) != 0) return true;
    if ((next & (kExtend | kSpacingMark | kJoiner)) != 0 || (last_ & kPrepend) != 0) return true;
    if (conjunct_ == Conjunct::kLinked && (next & kConsonant) != 0) return true;
    return picture_ == Picture::kJoined && (next & kPicture) != 0;
  }
  void take(uint32_t next) {
    if ((next & kConsonant) != 0)
      conjunct_ = Conjunct::kConsonant;
    else if ((next & kLinker) != 0 && conjunct_ != Conjunct::kNone)
      conjunct_ = Conjunct::kLinked;
    else if ((next & (kConjunctExtend | kLinker)) == 0)
      conjunct_ = Conjunct::kNone;
    if ((next & kPicture) != 0)
      picture_ = Picture::kSeen;
    else if ((next & kJoiner) != 0 && picture_ == Picture::kSeen)
      picture_ = Picture::kJoined;
    else if ((next & kExtend) == 0 || picture_ == Picture::kJoined)
      picture_ = Picture::kNone;
    last_ = next;
  }

 private:
  enum class Conjunct : uint8_t { kNone, kConsonant, kLinked } conjunct_ = Conjunct::kNone;
  enum class Picture : uint8_t { kNone, kSeen, kJoined } picture_ = Picture::kNone;
  uint32_t last_ = 0;
};

}  // namespace

size_t grapheme_bytes(std::string_view text) {
  CodePoint point = decode_utf8(text.data());
  auto size = static_cast<size_t>(point.num_bytes);
  Joiner joiner(flags_of(point.code));
  while (size < text.size()) {
    point = decode_utf8(text.data() + size);
    const uint32_t next = flags_of(point.code);
    if (!joiner.joins(next)) break;
    joiner.take(next);
    size += static_cast<size_t>(point.num_bytes);
  }
  return size;
}

}  // namespace espalier::text::internal
