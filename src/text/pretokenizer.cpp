#include "text/pretokenizer.h"

#include "text/internal/piece_scanner.h"

namespace espalier::text {

namespace {

struct KnownPattern {
  PieceRule rule;
  std::string_view pattern;
};

constexpr KnownPattern kPatterns[] = {
    {PieceRule::kGpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {PieceRule::kBloom, " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"},
    {PieceRule::kLlama3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {PieceRule::kQwen2, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
                        R"(\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {PieceRule::kCl100k,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

}  // namespace

void cut_pieces(PieceRule rule, std::string_view text, std::vector<std::string_view>& pieces) {
  internal::for_each_piece(rule, text, [&pieces](const char* begin, const char* end) {
    pieces.emplace_back(begin, static_cast<size_t>(end - begin));
  });
}

std::optional<PieceRule> rule_of_pattern(std::string_view pattern) {
  for (const KnownPattern& known : kPatterns) {
    if (known.pattern == pattern) return known.rule;
  }
  return std::nullopt;
}

std::string_view pattern_of_rule(PieceRule rule) {
  for (const KnownPattern& known : kPatterns) {
    if (known.rule == rule) return known.pattern;
  }
  return {};
}

std::string name_of_rule(PieceRule rule) {
  switch (rule) {
    case PieceRule::kGpt2: return "GPT-2's pattern";
    case PieceRule::kBloom: return "BLOOM's pattern";
    case PieceRule::kLlama3: return "Llama 3's pattern";
    case PieceRule::kQwen2: return "Qwen2's pattern";
    case PieceRule::kCl100k: return "cl100k_base's pattern";
  }
  return {};
}

}  // namespace espalier::text
