#include "data/blend.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "tests/support/npy.h"
#include "tests/support/oracle.h"

namespace espalier::data {
namespace {

using Json = nlohmann::json;

// As if every set were long enough for the whole blend, which then has exactly `size` samples.
BlendIndex endless_blend(const std::vector<double>& weights, int64_t size) {
  std::vector<int64_t> lengths(weights.size(), size);
  return BlendIndex::build(weights, lengths);
}

std::vector<int64_t> sets_of(const BlendIndex& blend, int64_t size) {
  std::vector<int64_t> sets;
  for (int64_t sample = 0; sample < size; ++sample) sets.push_back(blend.place(sample).set);
  return sets;
}

// Examples of a separate implementation of upstream's loop in Python.
TEST(BlendIndex, TheSetFurthestBehindItsShareComesNext) {
  EXPECT_EQ(sets_of(endless_blend({.3, .7}, 12), 12), (std::vector<int64_t>{1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(sets_of(endless_blend({.5, .3, .2}, 12), 12), (std::vector<int64_t>{0, 1, 2, 0, 1, 0, 2, 0, 1, 0, 0, 1}));
  EXPECT_EQ(sets_of(endless_blend({1, 1, 1}, 9), 9), (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
}

TEST(BlendIndex, PlacesCountTheSamplesOfEachSetAcrossBlocks) {
  const int64_t size = 3 * 4096 + 7;
  const BlendIndex blend = endless_blend({.17, .5, .33}, size);
  std::vector<int64_t> counts(3, 0);
  for (int64_t sample = 0; sample < size; ++sample) {
    const BlendIndex::Place place = blend.place(sample);
    ASSERT_EQ(place.sample, counts[place.set]++) << "sample " << sample;
  }
}

TEST(BlendIndex, EndsBeforeTheFirstSampleBeyondItsSet) {
  const std::vector<double> weights{.3, .7};
  const std::vector<int64_t> lengths{100, 6};
  const BlendIndex blend = BlendIndex::build(weights, lengths);
  EXPECT_EQ(sets_of(blend, blend.size()),
            (std::vector<int64_t>{1, 0, 1, 1, 0, 1, 1, 0, 1}));  // the seventh 1 is not there
}

TEST(BlendIndexOracle, WeightsAndIndicesEqualMegatronsBitForBit) {
  const Json oracle = Json::parse(test::read_bytes(test::find_data("megatron-oracle/blend/blend.json")));
  for (const auto& [name, expected] : oracle.items()) {
    const std::filesystem::path folder = test::find_data("megatron-oracle/blend/" + name);
    const auto weights = [&](const char* file) { return test::read_npy(folder / file).as<double>(); };
    const std::vector<double> given = weights("weights_given.npy");
    const std::vector<double> by_path = normalized_weights(given);
    EXPECT_EQ(by_path, weights("weights_after_data_prefix.npy")) << name;
    const auto by_numpy = [](std::vector<double> values) {
      const double sum = numpy_sum(values);
      for (double& value : values) value /= sum;
      return values;
    };
    EXPECT_EQ(by_numpy(given), weights("weights_normalized_raw.npy")) << name;
    EXPECT_EQ(by_numpy(by_path), weights("weights_normalized_prefix.npy")) << name;

    const int64_t asked[] = {1000, 100000, 220000000};
    for (int at = 0; at < 3; ++at) {
      const std::vector<int64_t> counts = samples_per_set(by_path, asked[at]);
      for (size_t set = 0; set < given.size(); ++set)
        EXPECT_EQ(counts[set], expected["num_samples_per_set_for_1000_100000_220000000"][set][at])
            << name << " set " << set;
    }
    for (const auto& [kind, from] :
         std::map<std::string, const std::vector<double>*>{{"raw", &given}, {"prefix", &by_path}})
      for (const int64_t size : {1000, 100000}) {
        const Json& sums = expected[kind + "_" + std::to_string(size)];
        const BlendIndex blend = endless_blend(*from, size);
        std::string sets, samples;
        for (int64_t sample = 0; sample < size; ++sample) {
          const BlendIndex::Place place = blend.place(sample);
          sets += static_cast<char>(place.set);
          samples.append(reinterpret_cast<const char*>(&place.sample), sizeof place.sample);
        }
        EXPECT_EQ(hex_digits(sha256(sets)), sums["sha256_dataset_index_u8"]) << name << " " << kind << " " << size;
        EXPECT_EQ(hex_digits(sha256(samples)), sums["sha256_dataset_sample_index_i64"])
            << name << " " << kind << " " << size;
      }
  }
  EXPECT_EQ(oracle.size(), 4u);
}

// 28 ratios: numpy's sum is not the one from left to right, and that shows in the last bits.
TEST(NumpySum, DiffersFromTheRunningSumForTwentyEightRatios) {
  const auto given = test::read_npy(test::find_data("megatron-oracle/blend/bloom_v3/weights_given.npy")).as<double>();
  double running = 0;
  for (const double weight : given) running += weight;
  EXPECT_NE(numpy_sum(given), running);
}

// np.sum(np.array([1 / k for k in range(1, n + 1)])) of numpy 1.23.5, as hex floats.
TEST(NumpySum, SplitsLongArraysInHalves) {
  const std::map<int, double> expected{
      {7, 0x1.4be2be2be2be2p+1},   {8, 0x1.5be2be2be2be2p+1},   {9, 0x1.6a1ba1ba1ba1bp+1},
      {33, 0x1.05aedec0dfa0ep+2},  {127, 0x1.5b38ae9541ca6p+2}, {128, 0x1.5bb8ae9541ca7p+2},
      {129, 0x1.5c37b09149ba9p+2}, {259, 0x1.88b3c80a467a2p+2}, {300, 0x1.92172a3e6965ap+2}};
  for (const auto& [count, sum] : expected) {
    std::vector<double> values;
    for (int at = 1; at <= count; ++at) values.push_back(1.0 / at);
    EXPECT_EQ(std::bit_cast<uint64_t>(numpy_sum(values)), std::bit_cast<uint64_t>(sum)) << count;
  }
}

}  // namespace
}  // namespace espalier::data
