// Text cut into pieces, inside which byte pairs are merged.
//
//   std::vector<std::string_view> pieces;
//   cut_pieces(PieceRule::kGpt2, text, pieces);   // the pieces, one after another, are the text
//
// A rule is a regular expression that published tokenizers use, matched by a scanner of our own: exactly as Oniguruma
// matches it inside Hugging Face's tokenizers (Unicode 16 classes), in linear time for any text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::text {

enum class PieceRule : uint8_t {
  kGpt2,    // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kBloom,   //  ?[^(\s|[.,!?…。，、।۔،])]+   and what is between two matches
  kLlama3,  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
            // \s*[\r\n]+|\s+(?!\S)|\s+
  kQwen2,   // the same with \p{N} for \p{N}{1,3}
  kCl100k,  // kLlama3 with \s+\z before \s*[\r\n]+: blanks at the end are one piece (tiktoken's cl100k_base)
};

// Appends the pieces of `text`, which must be valid UTF-8. They point into it.
void cut_pieces(PieceRule rule, std::string_view text, std::vector<std::string_view>& pieces);

// The rule whose pieces are those of Split{Regex pattern, Isolated}; none if the pattern is not one of the above.
std::optional<PieceRule> rule_of_pattern(std::string_view pattern);
std::string_view pattern_of_rule(PieceRule rule);
std::string name_of_rule(PieceRule rule);  // for people: "GPT-2's pattern"

}  // namespace espalier::text
