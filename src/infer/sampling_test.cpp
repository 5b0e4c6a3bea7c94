#include "infer/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace espalier::infer {
namespace sampling_test {

// Probabilities 0.5, 0.25, 0.15, 0.07, 0.03 and a padded id that must never appear.
std::vector<float> logits() {
  std::vector<float> values;
  for (const double p : {0.25, 0.5, 0.07, 0.15, 0.03}) values.push_back(static_cast<float>(std::log(p) + 3));
  values.push_back(50);
  return values;
}
constexpr int64_t kVocabulary = 5;

std::map<int32_t, double> frequencies(const SamplingConfig& config) {
  constexpr int kDraws = 20000;
  std::map<int32_t, double> counts;
  for (int draw = 0; draw < kDraws; ++draw)
    counts[sample_token(logits().data(), kVocabulary, config, /*row=*/3, draw).id] += 1.0 / kDraws;
  return counts;
}

TEST(SampleToken, GreedyTakesTheLikeliestWithItsLogProbability) {
  const SampledToken token = sample_token(logits().data(), kVocabulary, {.top_k = 1}, 0, 0);
  EXPECT_EQ(token.id, 1);
  EXPECT_NEAR(token.log_probability, std::log(0.5), 1e-6);
}

TEST(SampleToken, DrawsFollowTheProbabilities) {
  const auto seen = frequencies({.seed = 5});
  const std::map<int32_t, double> expected = {{0, 0.25}, {1, 0.5}, {2, 0.07}, {3, 0.15}, {4, 0.03}};
  ASSERT_EQ(seen.size(), expected.size());
  // Four standard deviations of a share of 20,000 draws.
  for (const auto& [id, share] : expected)
    EXPECT_NEAR(seen.at(id), share, 4 * std::sqrt(share * (1 - share) / 20000)) << "id " << id;
}

TEST(SampleToken, TemperatureSharpensAndFiltersRenormalise) {
  const auto sharp = frequencies({.temperature = 0.5, .seed = 6});  // probabilities squared
  const double total = 0.25 * 0.25 + 0.5 * 0.5 + 0.07 * 0.07 + 0.15 * 0.15 + 0.03 * 0.03;
  EXPECT_NEAR(sharp.at(1), 0.25 / total, 0.02);

  const auto top2 = frequencies({.top_k = 2, .seed = 7});
  EXPECT_EQ(top2.size(), 2u);
  EXPECT_NEAR(top2.at(1), 2.0 / 3, 0.02);

  // 0.5 + 0.25 do not exceed 0.8: the token that crosses it (0.15) is kept.
  const auto nucleus = frequencies({.top_p = 0.8, .seed = 8});
  EXPECT_EQ(nucleus.size(), 3u);
  EXPECT_TRUE(nucleus.contains(3));
}

TEST(SampleToken, TheSameSeedRowAndPositionGiveTheSameToken) {
  for (int64_t position = 0; position < 33; ++position)
    EXPECT_EQ(sample_token(logits().data(), kVocabulary, {.seed = 1}, 2, position).id,
              sample_token(logits().data(), kVocabulary, {.seed = 1}, 2, position).id);
}

}  // namespace sampling_test
}  // namespace espalier::infer
