#include "data/decoder_masks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "base/file.h"
#include "base/format.h"
#include "data/packed_dataset.h"
#include "tests/support/npy.h"

namespace espalier::data {
namespace decoder_masks_test {

using Kind = Objective::Kind;
using Ids = std::vector<int64_t>;
namespace fs = std::filesystem;

constexpr int32_t kEod = 9;

// Whether a query may attend to a key, for every pair of places: what the ranges of keys have to say.
using Matrix = std::vector<std::vector<bool>>;

Matrix visible(const RowMasks& masks) {
  const size_t length = masks.positions.size();
  Matrix matrix(length, std::vector<bool>(length));
  for (size_t query = 0; query < length; ++query) {
    const int64_t first = masks.first_keys.empty() ? 0 : masks.first_keys[query];
    const int64_t last = masks.last_keys.empty() ? static_cast<int64_t>(query) : masks.last_keys[query];
    for (int64_t key = first; key <= last; ++key) matrix[query].at(static_cast<size_t>(key)) = true;
  }
  return matrix;
}

RowRules prefix_rules(bool resets) {
  RowRules rules;
  rules.objective.kind = Kind::kPrefix;
  rules.text = {.eod = kEod, .reset_attention_mask = resets};
  rules.seed = 1234;
  return rules;
}

// Some ends of documents, also two in a row and at both ends.
Ids random_row(int64_t length, unsigned seed) {
  std::mt19937 random(seed);
  Ids ids(static_cast<size_t>(length) + 1);
  for (int64_t& id : ids) id = random() % 4 == 0 ? kEod : static_cast<int64_t>(random() % 9);
  return ids;
}

// The rule by pairs of places: inside a document every token sees those before it, and the tokens of its prefix each
// other.
TEST(PrefixMasks, ShowEachTokenItsPrefixAndWhatIsBeforeIt) {
  for (const bool resets : {false, true})
    for (const int64_t length : {1, 7, 33})
      for (unsigned seed = 0; seed < 20; ++seed) {
        const Ids ids = random_row(length, seed);
        const RowMasks masks = prefix_masks(ids, seed, prefix_rules(resets));
        const Matrix found = visible(masks);
        for (int64_t query = 0; query < length; ++query)
          for (int64_t key = 0; key < length; ++key) {
            const auto begin_of = [&](int64_t place) {
              while (resets && place > 0 && ids[static_cast<size_t>(place) - 1] != kEod) --place;
              return resets ? place : 0;
            };
            const int64_t begin = begin_of(query);
            const auto prefix = std::find_if(masks.prefixes.begin(), masks.prefixes.end(),
                                             [&](const TextPrefix& one) { return one.begin == begin; });
            ASSERT_NE(prefix, masks.prefixes.end());
            const bool in_prefix = query < prefix->end && key < prefix->end;
            const bool expected = begin_of(key) == begin && (key <= query || in_prefix);
            ASSERT_EQ(found[static_cast<size_t>(query)][static_cast<size_t>(key)], expected)
                << "length " << length << " resets " << resets << " query " << query << " key " << key;
          }
      }
}

// numpy's: python3 -c 'import numpy as np; print(np.random.RandomState((1234 + 2) % 2**32).randint(1, 33 + 1))'
TEST(PrefixMasks, AreDrawnAsNumpyDraws) {
  const auto end_of = [](int64_t seed, int64_t number, int64_t length) {
    RowRules rules = prefix_rules(false);
    rules.seed = seed;
    const std::vector<TextPrefix> prefixes = prefix_masks(Ids(static_cast<size_t>(length) + 1), number, rules).prefixes;
    EXPECT_EQ(prefixes.size(), 1u);
    EXPECT_EQ(prefixes[0].begin, 0);
    return prefixes[0].end;
  };
  EXPECT_EQ(end_of(1234, 0, 7), 4);
  EXPECT_EQ(end_of(1234, 1, 7), 4);
  EXPECT_EQ(end_of(1234, 2, 33), 12);
  EXPECT_EQ(end_of(4294967295, 1, 33), 1);  // the seed wraps to 0
  EXPECT_EQ(end_of(4294967290, 17, 2048), 1946);
  EXPECT_EQ(end_of(1234, 5, 1), 1);
}

// Documents at 0 to 4, 5 (an EOD alone), 6 to 9, and the rest; sample 5. The draws are randint(1, 5), (7, 10), (11,
// 16).
TEST(PrefixMasks, OfEachDocumentLeaveItsEndOut) {
  const Ids ids = {1, 2, 3, 4, kEod, kEod, 1, 2, 3, kEod, 1, 2, 3, 4, 5, 6};
  const std::vector<TextPrefix> prefixes = prefix_masks(ids, 5, prefix_rules(true)).prefixes;
  EXPECT_EQ(prefixes, (std::vector<TextPrefix>{{0, 4}, {5, 6}, {6, 7}, {10, 14}}));
}

TEST(PrefixMasks, CoverAllLengthsAlike) {
  constexpr int64_t kLength = 10, kSamples = 10000;
  std::vector<int64_t> counts(kLength + 1);
  const Ids ids(kLength + 1);
  for (int64_t number = 0; number < kSamples; ++number)
    ++counts.at(static_cast<size_t>(prefix_masks(ids, number, prefix_rules(false)).prefixes[0].end));
  EXPECT_EQ(counts[0], 0);
  for (int64_t end = 1; end <= kLength; ++end) EXPECT_NEAR(counts[static_cast<size_t>(end)], 1000, 150) << end;
}

// Over all prefixes alike, the losses of a row are divided by the mean of what they weigh, so that no place of a text
// counts more than another in a long run.
TEST(PrefixMasks, AreDividedByTheMeanOfTheirWeights) {
  for (const bool reweights : {false, true})
    for (const int64_t length : {1, 7, 33}) {
      RowRules rules = prefix_rules(false);
      rules.objective.loss_on_targets_only = true;
      rules.objective.reweight_positions = reweights;
      const Ids ids(static_cast<size_t>(length) + 1);
      std::vector<double> sums(static_cast<size_t>(length) + 1, -1);
      double num_targets = 0, mean = 0;
      for (int64_t number = 0; std::count(sums.begin() + 1, sums.end(), -1) > 0; ++number) {
        const RowMasks masks = prefix_masks(ids, number, rules);
        double& sum = sums[static_cast<size_t>(masks.prefixes[0].end)] = 0;
        for (const float weight : masks.loss_mask) sum += weight;
        num_targets = masks.num_targets;
      }
      for (int64_t end = 1; end <= length; ++end) mean += sums[static_cast<size_t>(end)] / static_cast<double>(length);
      EXPECT_NEAR(num_targets, mean, 1e-5 * mean) << length << " " << reweights;
    }
}

struct PairRow {
  Ids ids, segments, is_input;
};

// Pairs of these numbers of input and target tokens, and padding to `length` + 1 ids.
PairRow pair_row(const std::vector<std::pair<int64_t, int64_t>>& pairs, int64_t length) {
  PairRow row;
  int64_t segment = 0;
  for (const auto& [input, target] : pairs) {
    ++segment;
    for (int64_t at = 0; at < input + target; ++at) {
      row.ids.push_back(static_cast<int64_t>(row.ids.size()) % 7);
      row.segments.push_back(segment);
      row.is_input.push_back(at < input);
    }
  }
  EXPECT_LE(static_cast<int64_t>(row.ids.size()), length + 1);
  const auto padded = static_cast<size_t>(length) + 1;
  row.ids.resize(padded, 99);
  row.segments.resize(padded);
  row.is_input.resize(padded);
  return row;
}

RowMasks masks_of(const PairRow& row, const Objective& objective) {
  RowRules rules;
  rules.objective = objective;
  return pair_masks(row.ids, row.segments, row.is_input, rules);
}

TEST(PairMasks, KeepAttentionInsideOfPairsAndLearnTargetsOnly) {
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  const std::vector<std::pair<int64_t, Pairs>> cases = {
      {1, {{1, 1}}},         {7, {{3, 2}, {2, 1}}},  {7, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}}, {7, {{1, 6}}},
      {7, {{7, 1}}},         {33, {{9, 4}, {1, 5}}}, {33, {{5, 1}, {2, 9}, {10, 7}}},       {33, {{33, 1}}},
      {33, {{2, 2}, {1, 1}}}};
  for (const bool whole_input : {false, true})
    for (const auto& [length, pairs] : cases) {
      const PairRow row = pair_row(pairs, length);
      const RowMasks masks = masks_of(row, {.kind = Kind::kMultitask, .whole_input = whole_input});
      const Matrix found = visible(masks);
      double targets = 0;
      int64_t position = 0;
      for (size_t query = 0; query < found.size(); ++query) {
        for (size_t key = 0; key < found.size(); ++key) {
          const bool both_inputs = whole_input && row.is_input[query] != 0 && row.is_input[key] != 0;
          const bool expected =
              row.segments[query] != 0 && row.segments[query] == row.segments[key] && (key <= query || both_inputs);
          ASSERT_EQ(found[query][key], expected) << length << " " << whole_input << " " << query << " " << key;
        }
        const bool is_learnt = row.segments[query + 1] != 0 && row.is_input[query + 1] == 0;
        EXPECT_EQ(masks.loss_mask[query], is_learnt ? 1 : 0) << length << " " << query;
        targets += is_learnt;
        position = query > 0 && row.segments[query] == row.segments[query - 1] ? position + 1 : 0;
        EXPECT_EQ(masks.positions[query], row.segments[query] == 0 ? 0 : position);
      }
      EXPECT_EQ(masks.num_targets, targets);
    }
}

TEST(PairMasks, LetEachTargetWeighTheSame) {
  const PairRow row = pair_row({{2, 3}, {1, 1}, {4, 2}}, 15);
  const RowMasks masks = masks_of(row, {.kind = Kind::kMultitask, .norm_target_loss = true});
  const float third = 1.0f / 3;
  EXPECT_EQ(masks.loss_mask, (std::vector<float>{0, third, third, third, 0, 1, 0, 0, 0, 0, 0.5, 0.5, 0, 0, 0}));
  EXPECT_EQ(masks.num_targets, 3);
}

TEST(PairMasks, OfARowOfPaddingSeeAndLearnNothing) {
  const RowMasks masks = masks_of(pair_row({}, 7), {.kind = Kind::kMultitask});
  EXPECT_EQ(masks.last_keys, std::vector<int32_t>(7, -1));
  EXPECT_EQ(masks.loss_mask, std::vector<float>(7, 0));
  EXPECT_EQ(masks.num_targets, 0);
}

// The cases of tests/oracle/megatron_masks_oracle.py.
std::vector<fs::path> mask_cases(const std::string& kind) {
  std::vector<fs::path> roots = {"tests/data/megatron-oracle/masks"}, cases;
  if (const char* fresh = std::getenv("ESPALIER_FRESH_ORACLES"))
    if (fs::exists(fs::path(fresh) / "megatron_masks")) roots.push_back(fs::path(fresh) / "megatron_masks");
  for (const fs::path& root : roots)
    for (const auto& entry : fs::directory_iterator(root))
      if (entry.path().filename().string().starts_with(kind)) cases.push_back(entry.path());
  EXPECT_GE(cases.size(), 8u) << kind;
  return cases;
}

template <class T>
std::vector<std::vector<T>> rows_of(const fs::path& file) {
  const test::Npy npy = test::read_npy(file);
  const std::vector<T> all = npy.as<T>();
  const auto width = static_cast<std::ptrdiff_t>(all.size()) / npy.shape.at(0);
  std::vector<std::vector<T>> rows;
  for (auto at = all.begin(); at != all.end(); at += width) rows.emplace_back(at, at + width);
  return rows;
}

void expect_upstreams(const RowMasks& masks, const fs::path& folder, size_t row) {
  SCOPED_TRACE(concat(folder.string(), " row ", row));
  const auto blocked = rows_of<int64_t>(folder / "blocked.npy").at(row);
  const Matrix found = visible(masks);
  for (size_t query = 0; query < found.size(); ++query)
    for (size_t key = 0; key < found.size(); ++key)
      ASSERT_EQ(found[query][key], blocked[query * found.size() + key] == 0) << query << " " << key;
  EXPECT_EQ(masks.loss_mask, rows_of<float>(folder / "loss_mask.npy").at(row));
  const auto losses = rows_of<double>(folder / "token_losses.npy").at(row);
  double sum = 0;
  for (size_t at = 0; at < losses.size(); ++at) sum += losses[at] * static_cast<double>(masks.loss_mask[at]);
  const double loss = rows_of<double>(folder / "loss.npy").at(row).at(0);
  if (masks.num_targets > 0)
    EXPECT_NEAR(sum / masks.num_targets, loss, 1e-6 * std::max(1.0, loss));
  else
    EXPECT_TRUE(std::isnan(loss)) << loss;
}

TEST(MegatronMasks, OfPrefixesAreEqual) {
  for (const fs::path& folder : mask_cases("prefix")) {
    const auto options = nlohmann::json::parse(read_file(folder / "case.json"));
    RowRules rules;
    rules.objective = {.kind = Kind::kPrefix,
                       .loss_on_targets_only = options["loss_on_targets_only"],
                       .reweight_positions = options["reweight_loss_based_on_position_frequency"]};
    rules.text = {.eod = options["eod"].get<int32_t>(),
                  .reset_position_ids = options["reset_position_ids"],
                  .reset_attention_mask = options["reset_attention_mask"],
                  .eod_mask_loss = options["eod_mask_loss"]};
    rules.seed = options["seed"];
    const auto ids = rows_of<int64_t>(folder / "ids.npy"), positions = rows_of<int64_t>(folder / "positions.npy");
    for (size_t row = 0; row < ids.size(); ++row) {
      const RowMasks masks = row_masks({{ids[row]}, 0}, static_cast<int64_t>(row), rules);
      expect_upstreams(masks, folder, row);
      EXPECT_EQ(masks.positions, positions[row]) << folder;
    }
  }
}

TEST(MegatronMasks, OfPackedPairsAreEqual) {
  for (const fs::path& folder : mask_cases("pairs")) {
    const auto options = nlohmann::json::parse(read_file(folder / "case.json"));
    RowRules rules;
    rules.objective = {
        .kind = Kind::kMultitask, .whole_input = options["prefixlm"], .norm_target_loss = options["norm_target_loss"]};
    rules.text = {.eod = options["eod"].get<int32_t>(), .eod_mask_loss = options["eod_mask_loss"]};
    const auto ids = rows_of<int64_t>(folder / "ids.npy"), segments = rows_of<int64_t>(folder / "segments.npy"),
               is_input = rows_of<int64_t>(folder / "is_input.npy");
    for (size_t row = 0; row < ids.size(); ++row)
      expect_upstreams(row_masks({{ids[row], segments[row], is_input[row]}, 0}, static_cast<int64_t>(row), rules),
                       folder, row);
  }
}

// A row of several sequences is what each of them is alone, moved to its place.
TEST(LengthMasks, ARowOfSequencesIsEachOfThemAlone) {
  for (const bool resets : {false, true})
    for (const int64_t length : {1, 7, 33})
      for (unsigned seed = 0; seed < 10; ++seed) {
        const Ids ids = random_row(3 * length, seed);
        const TextMaskOptions options{
            .eod = kEod, .reset_position_ids = resets, .reset_attention_mask = resets, .eod_mask_loss = seed % 2 == 0};
        const RowMasks masks = causal_masks(ids, options, length);
        const Matrix sees = visible(masks);
        for (int64_t begin = 0; begin < 3 * length; begin += length) {
          const RowMasks alone = causal_masks(
              std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(length) + 1), options);
          const Matrix alone_sees = visible(alone);
          for (int64_t at = 0; at < length; ++at) {
            const auto in_row = static_cast<size_t>(begin + at), in_sequence = static_cast<size_t>(at);
            EXPECT_EQ(masks.positions[in_row], alone.positions[in_sequence]);
            EXPECT_EQ(masks.loss_mask[in_row], alone.loss_mask[in_sequence]);
            for (int64_t key = 0; key < 3 * length; ++key) {
              const bool inside = key >= begin && key < begin + length;
              EXPECT_EQ(sees[in_row][static_cast<size_t>(key)],
                        inside && alone_sees[in_sequence][static_cast<size_t>(key - begin)]);
            }
          }
        }
      }
}

TEST(LengthMasks, TheLengthIsThatOfTheStageOfTheSample) {
  RowRules rules;
  rules.lengths = {{0, 2}, {10, 3}, {20, 6}};
  const Sample sample{{Ids(7, 1)}, 0};
  for (const auto& [number, expected] : {std::pair<int64_t, Ids>{9, {0, 1, 0, 1, 0, 1}},
                                         {10, {0, 1, 2, 0, 1, 2}},
                                         {19, {0, 1, 2, 0, 1, 2}},
                                         {20, {0, 1, 2, 3, 4, 5}}})
    EXPECT_EQ(row_masks(sample, number, rules).positions, expected) << number;
  rules.lengths = {{10, 3}};
  EXPECT_EQ(row_masks(sample, 9, rules).positions, (Ids{0, 1, 2, 3, 4, 5}));
}

// A packed row: documents of 3, 2 and 1 tokens, the second cut before its end, and two places of padding.
TEST(PackedTextMasks, DocumentsEndWhereTheirSegmentsDo) {
  const Ids ids = {1, 2, kEod, 3, 4, kEod, 0, 0}, segments = {1, 1, 1, 2, 2, 3, 0, 0};
  RowMasks masks =
      causal_masks(ids, {.eod = kEod, .reset_position_ids = true, .reset_attention_mask = true}, 0, segments);
  EXPECT_EQ(masks.positions, (Ids{0, 1, 2, 0, 1, 0, 0}));
  EXPECT_EQ(masks.loss_mask, (std::vector<float>{1, 1, 0, 1, 0, 0, 0}));
  EXPECT_EQ(masks.first_keys, (std::vector<int32_t>{0, 0, 0, 3, 3, 5, 6}));
  EXPECT_EQ(masks.num_targets, 3);
  masks = causal_masks(ids, {}, 0, segments);
  EXPECT_EQ(masks.positions, (Ids{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(masks.loss_mask, (std::vector<float>{1, 1, 0, 1, 0, 0, 0}));
  EXPECT_TRUE(masks.first_keys.empty());
}

}  // namespace decoder_masks_test
}  // namespace espalier::data
