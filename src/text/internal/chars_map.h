// SentencePiece's precompiled_charsmap: a double-array trie (as darts-clone writes it) from byte strings to what takes
// their place.
//
// Layout: uint32 size of the trie in bytes, the trie as uint32 units, then the replacements, each ended by a zero byte.
// A unit of the trie holds a label (bits 0-7; bit 31 marks a value), whether a value follows (bit 8), and the offset to
// its children (bits 10-30, times 256 if bit 9 is set). Little-endian, as all machines here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::text::internal {

class CharsMap {
 public:
  struct Match {
    size_t num_bytes = 0;  // 0: there is none
    std::string_view replacement;
  };

  CharsMap() = default;  // replaces nothing
  // Throws UserError, `where` being the file and the key, for what cannot be such a map, or has a key so long (or, by a
  // loop, without end) that every place of a text would be followed far.
  CharsMap(std::string_view blob, const std::string& where);

  const std::string& where() const { return where_; }
  bool empty() const { return units_.empty(); }
  // Of the keys that `text` begins with: the longest, as SentencePiece takes it, and the shortest, as tokenizers does.
  // Throws UserError if that one ends inside a character of `text` (valid UTF-8), which would leave half of it.
  Match longest(std::string_view text) const { return find(text, /*first_only=*/false); }
  Match shortest(std::string_view text) const { return find(text, /*first_only=*/true); }
  // True if some key begins with these bytes.
  bool has_prefix(std::string_view bytes) const;
  // Every key with what takes its place, in the order of the keys' bytes.
  std::vector<std::pair<std::string, std::string>> rules() const;
  // The map as it was read.
  std::string blob() const;

 private:
  Match find(std::string_view text, bool first_only) const;
  void check_length_of_keys() const;

  std::string where_;
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace espalier::text::internal
