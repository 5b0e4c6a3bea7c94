// Expected values are sacrebleu 2.6.0's, and of bootstraps lm_eval 0.4.13's.
#include "eval/translation_scores.h"

#include <gtest/gtest.h>

#include "eval/text_metrics.h"

namespace espalier::eval {
namespace translation_scores_test {

const std::vector<std::string> kReferences = {"The cat sat on the mat, near 3.5 dogs.",
                                              "It is a nice (very nice) day today.", "naïve é – test", "one"};
const std::vector<std::string> kTexts = {"The cat sat on a mat near 3.5 dogs .", "It is nice day (very) today!",
                                         "naive é - test", "two words"};

Items items_of(Counts (*counts)(const std::string&, const std::string&), size_t begin, size_t end) {
  Items items;
  for (size_t i = begin; i < end; ++i) items.push_back({.counts = counts(kTexts[i], kReferences[i])});
  return items;
}

TEST(TranslationScores, TokensAreThoseOf13a) {
  EXPECT_EQ(tokenize_13a("Hello, world! It's 3.5 km-long, e.g. \"so\" &amp; a-\nb <skipped>x"),
            "Hello , world ! It's 3.5 km-long , e . g . \" so \" & ab x");
  EXPECT_EQ(tokenize_13a("1-2 a.b,c ..5 naïve—é."), "1 - 2 a . b , c . .5 naïve—é .");
  EXPECT_EQ(tokenize_13a(""), "");
}

TEST(TranslationScores, AreThoseOfTheCorpus) {
  EXPECT_NEAR(bleu().value(items_of(bleu_counts, 0, 4)), 28.9938421433256, 1e-11);
  EXPECT_NEAR(bleu().value(items_of(bleu_counts, 2, 4)), 15.973577606156818, 1e-11);
  EXPECT_NEAR(bleu().value(items_of(bleu_counts, 0, 2)), 30.958159075047647, 1e-11);
  EXPECT_NEAR(chrf().value(items_of(chrf_counts, 0, 4)), 49.72132753371563, 1e-11);
  EXPECT_NEAR(chrf_plus().value(items_of(chrf_plus_counts, 0, 4)), 49.28911525520446, 1e-11);
}

TEST(TranslationScores, WhatHasNothingInCommonIsWorthNothing) {
  EXPECT_EQ(bleu_of(bleu_counts("", "a")), 0);
  EXPECT_EQ(bleu_of(bleu_counts("the", "the cat")), 0);  // it has no pairs of words
  EXPECT_EQ(chrf_of(chrf_counts("", "a")), 0);
  EXPECT_EQ(chrf_of(chrf_counts("b", "a")), 0);
}

TEST(TranslationScores, ErrorsAreOfAtMostAHundredResamples) {
  EXPECT_NEAR(*bleu().error(items_of(bleu_counts, 0, 4), 100'000), 14.950494993091137, 1e-11);
  EXPECT_NEAR(*chrf().error(items_of(chrf_counts, 0, 4), 50), 13.54947531123958, 1e-11);
}

}  // namespace translation_scores_test
}  // namespace espalier::eval
