#include "text/internal/normal_form.h"

#include <gtest/gtest.h>

namespace espalier::text::internal {
namespace normal_form_test {

std::string normalized(NormalForm form, std::string text) {
  normalize(form, text);
  return text;
}

TEST(NormalForm, ComposesDecomposesAndReorders) {
  EXPECT_EQ(normalized(NormalForm::kNfc, "e\u0301 \u1100\u1161\u11A8 s\u0307\u0323"), "\u00E9 \uAC01 \u1E69");
  EXPECT_EQ(normalized(NormalForm::kNfd, "\u00E9\u1E69"), "e\u0301s\u0323\u0307");
  EXPECT_EQ(normalized(NormalForm::kNfkc, "\uFB01\u2460\u00A0"), "fi1 ");
  EXPECT_EQ(normalized(NormalForm::kNfkd, "\u00BD"), "1\u20442");
}

// U+0958 is excluded from composition; U+11938 (Unicode 13) and U+0898 (14) are unknown to tokenizers' tables.
TEST(NormalForm, KeepsWhatTokenizersKeeps) {
  EXPECT_EQ(normalized(NormalForm::kNfc, "\u0958"), "\u0915\u093C");
  EXPECT_EQ(normalized(NormalForm::kNfd, "\U00011938"), "\U00011938");
  EXPECT_EQ(normalized(NormalForm::kNfc, "\U00011935\U00011930"), "\U00011935\U00011930");
  EXPECT_EQ(normalized(NormalForm::kNfd, "a\u0301\u0898"), "a\u0301\u0898");
}

// Every second mark belongs before the one before it.
TEST(NormalForm, ALongRunOfMarksIsSortedQuickly) {
  std::string text = "a", expected = "a";
  const int num_pairs = 200000;
  for (int i = 0; i < num_pairs; ++i) text += "\u0301\u0323";
  for (int i = 0; i < num_pairs; ++i) expected += "\u0323";
  for (int i = 0; i < num_pairs; ++i) expected += "\u0301";
  EXPECT_TRUE(normalized(NormalForm::kNfd, text) == expected);
}

}  // namespace normal_form_test
}  // namespace espalier::text::internal
