#include "infer/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
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

TEST(SampleToken, TemperatureZeroIsGreedy) {
  for (int64_t position = 0; position < 33; ++position)
    EXPECT_EQ(sample_token(logits().data(), kVocabulary, {.temperature = 0}, 0, position).id, 1);
}

TEST(SampleToken, MinPKeepsWhatIsNearTheLikeliest) {
  // Of 0.5: 0.25 and 0.15 are above a share of 0.25, 0.07 and 0.03 are not.
  const auto seen = frequencies({.min_p = 0.25, .seed = 9});
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_NEAR(seen.at(3), 0.15 / 0.9, 0.02);
  // Shares are of the distribution that the temperature gives: 0.07^2 / 0.5^2 is less than 0.02.
  EXPECT_FALSE(frequencies({.temperature = 0.5, .min_p = 0.02, .seed = 9}).contains(2));
  EXPECT_TRUE(frequencies({.temperature = 1, .min_p = 0.02, .seed = 9}).contains(2));
}

std::vector<float> random_logits(std::mt19937& random, int64_t count) {
  std::vector<float> values;
  // Few different ones, so that there are ties.
  for (int64_t id = 0; id < count; ++id) values.push_back(static_cast<float>(static_cast<int>(random() % 29) - 14) / 3);
  return values;
}

double share(float logit, float largest, double temperature) { return std::exp((logit - largest) / temperature); }

// Ids that the filters leave, each rule by itself as a plain loop over all ids.
std::set<int32_t> left(const std::vector<float>& values, const SamplingConfig& config) {
  const auto is_likelier = [&](size_t a, size_t b) {
    return values[a] > values[b] || (values[a] == values[b] && a < b);
  };
  const float largest = *std::max_element(values.begin(), values.end());
  std::set<int32_t> kept;
  for (size_t id = 0; id < values.size(); ++id) {
    int64_t num_larger = 0;
    for (const float other : values) num_larger += other > values[id] ? 1 : 0;
    if (config.top_k == 0 || num_larger < config.top_k) kept.insert(static_cast<int32_t>(id));
  }
  double total = 0;
  for (const int32_t id : kept) total += share(values[static_cast<size_t>(id)], largest, config.temperature);
  std::set<int32_t> result;
  for (const int32_t id : kept) {
    double before = 0;  // the probability of what is likelier
    for (const int32_t other : kept)
      if (is_likelier(static_cast<size_t>(other), static_cast<size_t>(id)))
        before += share(values[static_cast<size_t>(other)], largest, config.temperature);
    const double own = share(values[static_cast<size_t>(id)], largest, config.temperature);
    if ((config.top_p == 0 || before <= config.top_p * total) && own >= config.min_p) result.insert(id);
  }
  return result;
}

TEST(SampleToken, DrawsAllThatTheFiltersLeaveAndNothingElse) {
  std::mt19937 random(4);
  for (int round = 0; round < 60; ++round) {
    const int64_t count = round % 3 == 0 ? 1 : round % 3 == 1 ? 7 : 33;
    const std::vector<float> values = random_logits(random, count);
    const SamplingConfig config{.temperature = 1.0 + static_cast<double>(random() % 3),
                                .top_k = random() % 2 == 0 ? 0 : static_cast<int64_t>(2 + random() % 9),
                                .top_p = random() % 2 == 0 ? 0 : 0.3 + 0.1 * static_cast<double>(random() % 6),
                                .min_p = random() % 2 == 0 ? 0 : 0.05 * static_cast<double>(1 + random() % 4),
                                .seed = random()};
    const std::set<int32_t> expected = left(values, config);
    std::set<int32_t> drawn;
    double least = 1, total = 0;
    const float largest = *std::max_element(values.begin(), values.end());
    for (const int32_t id : expected) total += share(values[static_cast<size_t>(id)], largest, config.temperature);
    for (const int32_t id : expected)
      least = std::min(least, share(values[static_cast<size_t>(id)], largest, config.temperature) / total);
    for (int64_t position = 0; position < 3000; ++position)
      drawn.insert(draw_token(values.data(), count, config, 0, position));
    for (const int32_t id : drawn) EXPECT_TRUE(expected.contains(id)) << "round " << round << ", id " << id;
    EXPECT_TRUE(least < 0.005 || drawn.size() == expected.size()) << "round " << round;
  }
}

// 0.9 keeps four of 0.5, 0.25, 0.15, 0.07, 0.03; 0.9 * 0.8^2 = 0.576 two; 0.9 * 0.8^3 = 0.46 one, unless it is bound.
TEST(SampleToken, TopPDecaysDownToItsBound) {
  const auto drawn_at = [](int64_t position, double bound) {
    std::set<int32_t> drawn;
    for (int64_t row = 0; row < 500; ++row)
      drawn.insert(draw_token(logits().data(), kVocabulary, {.top_p = 0.9, .top_p_decay = 0.8, .top_p_bound = bound},
                              row, position));
    return drawn.size();
  };
  EXPECT_EQ(drawn_at(0, 0), 4u);
  EXPECT_EQ(drawn_at(2, 0), 2u);
  EXPECT_EQ(drawn_at(3, 0), 1u);
  EXPECT_EQ(drawn_at(90000, 0), 1u);
  EXPECT_EQ(drawn_at(90, 0.55), 2u);
}

TEST(AdjustedLogits, AreThoseOfTheFormulas) {
  std::mt19937 random(5);
  for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{33}}) {
    const std::vector<float> values = random_logits(random, count);
    std::vector<int32_t> prompt, text;
    for (int at = 0; at < 9; ++at) prompt.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(count)));
    for (int at = 0; at < 12; ++at) text.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(count)));
    const SamplingConfig config{
        .repetition_penalty = 1.25, .frequency_penalty = 0.3, .presence_penalty = -0.7, .logit_bias = {{0, 3.5}}};
    TokenHistory history(prompt);
    for (const int32_t id : text) history.add(id);
    std::vector<float> storage;
    const std::vector<int32_t> banned = {static_cast<int32_t>(count - 1)};
    const float* adjusted = adjusted_logits(values.data(), count, config, history, banned, storage);
    for (int32_t id = 0; id < count; ++id) {
      double expected = values[static_cast<size_t>(id)] + (id == 0 ? 3.5 : 0);
      const auto num_in_text = std::count(text.begin(), text.end(), id);
      if (num_in_text > 0 || std::count(prompt.begin(), prompt.end(), id) > 0)
        expected *= expected > 0 ? 1 / 1.25 : 1.25;
      expected -= 0.3 * static_cast<double>(num_in_text) + (num_in_text > 0 ? -0.7 : 0);
      if (id == count - 1)
        EXPECT_EQ(adjusted[id], -std::numeric_limits<float>::infinity());
      else
        EXPECT_NEAR(adjusted[id], expected, 1e-5) << "id " << id << " of " << count;
    }
  }
}

TEST(AdjustedLogits, AreTheLogitsWhereNothingChangesThem) {
  const std::vector<float> values = logits();
  std::vector<float> storage;
  const TokenHistory history(std::vector<int32_t>{1, 2});
  EXPECT_EQ(adjusted_logits(values.data(), kVocabulary, {.temperature = 0.3, .top_k = 2}, history, {}, storage),
            values.data());
}

}  // namespace sampling_test
}  // namespace espalier::infer
