// Graphemes (what a reader takes for one character), as tokenizers finds them for its Precompiled normalizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace espalier::text::internal {

// Written by generate_grapheme_table.py; the flags in the order there.
struct GraphemeRange {
  char32_t first, last;
  uint16_t flags;
};
extern const GraphemeRange kGraphemeRanges[];
extern const size_t kGraphemeRangesSize;

// Bytes of the grapheme at the start of `text`, valid UTF-8 and not empty. Flags of countries count as two: nothing
// that is below 6 bytes, and only such graphemes matter, depends on them.
size_t grapheme_bytes(std::string_view text);

}  // namespace espalier::text::internal
