#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "text/internal/pattern.h"
#include "text/utf8.h"

namespace espalier::text {
namespace pretokenizer_test {

using Strings = std::vector<std::string>;

Strings pieces_of(PieceRule rule, const std::string& text) {
  std::vector<std::string_view> pieces;
  cut_pieces(rule, text, pieces);
  return {pieces.begin(), pieces.end()};
}

constexpr PieceRule kRules[] = {PieceRule::kGpt2, PieceRule::kBloom, PieceRule::kLlama3, PieceRule::kQwen2,
                                PieceRule::kCl100k};

TEST(Pretokenizer, CutsWhereGpt2Does) {
  EXPECT_EQ(pieces_of(PieceRule::kGpt2, "I'll  don't 'S\n\n x12,3"),
            (Strings{"I", "'ll", " ", " don", "'t", " '", "S", "\n\n", " x", "12", ",", "3"}));
}

TEST(Pretokenizer, CutsWhereBloomDoes) {
  EXPECT_EQ(pieces_of(PieceRule::kBloom, "Hello, world!  a(b)c|d[e]f"),
            (Strings{"Hello", ",", " world", "! ", " a", "(", "b", ")", "c", "|", "d[e]f"}));
  EXPECT_EQ(pieces_of(PieceRule::kBloom, "(|) ()"), (Strings{"(|) ()"}));
  EXPECT_EQ(pieces_of(PieceRule::kBloom, "don't 12345"), (Strings{"don't", " 12345"}));
}

TEST(Pretokenizer, CutsWhereLlama3AndQwen2Do) {
  EXPECT_EQ(pieces_of(PieceRule::kLlama3, "DON'T(abc 12345!\r\n\n  x"),
            (Strings{"DON", "'T", "(abc", " ", "123", "45", "!\r\n\n", " ", " x"}));
  EXPECT_EQ(pieces_of(PieceRule::kQwen2, "a123 '\u017F"), (Strings{"a", "1", "2", "3", " '", "\u017F"}));
  EXPECT_EQ(pieces_of(PieceRule::kQwen2, "a'\u017Fb"), (Strings{"a", "'\u017F", "b"}));
}

std::string random_text(std::mt19937& random) {
  static const std::u32string kAlphabet =
      U"ab'stremlld  "
      U"\n\r\t\u00A0\u3000()[]|!?.,;19\u0664\u00BD\u4E00\u3002\uFF0C\u0964\u0915\u094D\u0430\u0301\U0001F600\u017F"
      U"\u0085\u2028\u200D\u180E\U00011DE0\U000323AF";
  std::string text;
  const size_t length = random() % 24;
  for (size_t i = 0; i < length; ++i) append_utf8(kAlphabet[random() % kAlphabet.size()], text);
  return text;
}

// The pattern itself, translated and matched by PCRE2, is another implementation.
TEST(Pretokenizer, ScannersAgreeWithTheirPatterns) {
  std::mt19937 random(7);
  for (const PieceRule rule : kRules) {
    const auto pattern = internal::regex_pattern(std::string(pattern_of_rule(rule)), "test");
    for (int trial = 0; trial < 3000; ++trial) {
      const std::string text = random_text(random);
      std::vector<internal::Stretch> stretches;
      pattern->find(text, stretches);
      Strings expected;
      for (const internal::Stretch& stretch : stretches) {
        expected.push_back(text.substr(stretch.begin, stretch.end - stretch.begin));
      }
      ASSERT_EQ(pieces_of(rule, text), expected) << name_of_rule(rule);
    }
  }
}

TEST(Pretokenizer, PatternsAndRulesAreEachOthersInverse) {
  for (const PieceRule rule : kRules) EXPECT_EQ(rule_of_pattern(pattern_of_rule(rule)), rule);
  EXPECT_EQ(rule_of_pattern("\\s+"), std::nullopt);
}

}  // namespace pretokenizer_test
}  // namespace espalier::text
