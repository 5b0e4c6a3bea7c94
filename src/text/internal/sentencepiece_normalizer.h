// What SentencePiece does to a text before it cuts it: rules of characters, blanks made visible, a blank put before it.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "text/internal/piece_trie.h"
#include "text/internal/sentencepiece_model.h"

namespace espalier::text::internal {

inline constexpr std::string_view kVisibleBlank = "\u2581";

class SentencePieceNormalizer {
 public:
  // `kept`: pieces that no rule touches (user-defined ones), or null. Both must outlive the normalizer.
  SentencePieceNormalizer(const SentencePieceRules& rules, const PieceTrie* kept);

  // `text` is valid UTF-8; `normalized` is replaced.
  void apply(std::string_view text, std::string& normalized) const;

 private:
  struct Step {
    std::string_view replacement;
    size_t num_bytes;
  };
  Step step(std::string_view text) const;
  size_t plain_run(std::string_view text) const;
  void append(std::string_view text, std::string& normalized) const;

  const SentencePieceRules& rules_;
  const PieceTrie* kept_;
  std::string_view blank_;            // what stands for one
  std::array<bool, 128> is_plain_{};  // ASCII that stays as it is where ASCII or the end follows; no blank
};

}  // namespace espalier::text::internal
