#include "data/numpy_random.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace espalier::data {
namespace {

std::vector<int64_t> shuffled_range(uint32_t seed, int64_t size) {
  std::vector<int64_t> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), 0);
  NumpyRandom(seed).shuffle(std::span(values));
  return values;
}

// Expected values of this file: numpy 2.4.6, np.random.RandomState(seed).
TEST(NumpyRandom, ShuffleGivesNumpysOrder) {
  EXPECT_EQ(shuffled_range(1234, 10), (std::vector<int64_t>{7, 2, 9, 1, 0, 8, 4, 5, 6, 3}));
  EXPECT_EQ(shuffled_range(1, 10), (std::vector<int64_t>{2, 9, 6, 4, 0, 3, 1, 7, 8, 5}));
}

TEST(NumpyRandom, IntervalGivesNumpysRandint) {
  NumpyRandom random(1234);
  for (const uint64_t expected : {47, 83, 38, 53, 76, 24, 15, 49}) EXPECT_EQ(random.interval(99), expected);
}

// What numpy's RandomState(1234) gives, each from a fresh generator.
TEST(NumpyRandom, OtherDrawsAreNumpys) {
  NumpyRandom uniform(1234), integer(1234), choice(1234), geometric(1234);
  for (const double expected : {0.1915194503788923, 0.6221087710398319, 0.4377277390071145})
    EXPECT_EQ(uniform.uniform(), expected);
  for (const int64_t expected : {47, 83, 38, 53}) EXPECT_EQ(integer.integer(-3, 97), expected - 3);
  EXPECT_EQ(integer.integer(8, 9), 8);  // draws nothing
  EXPECT_EQ(integer.integer(0, 100), 76);
  for (const int64_t expected : {1, 5, 3, 7, 7, 2, 2, 8, 15, 10}) EXPECT_EQ(geometric.geometric(0.2), expected);
  const std::vector<double> cumulated = {6.0 / 11, 9.0 / 11, 1.0};
  for (const size_t expected : {1, 2, 1, 2, 2, 1, 1, 2, 3, 3, 1, 1}) EXPECT_EQ(choice.choice(cumulated) + 1, expected);
}

TEST(NumpyRandom, IntervalOfZeroDrawsNothing) {
  NumpyRandom random(1234);
  EXPECT_EQ(random.interval(0), 0u);
  EXPECT_EQ(random.interval(99), 47u);
}

// Above 2^32 two words make a number, the high one first: the loop of numpy's random_interval, written out.
TEST(NumpyRandom, LargeIntervalTakesTwoWords) {
  const uint64_t maximum = (uint64_t{5} << 32) + 17;
  std::mt19937 words(77);
  uint64_t expected;
  do {
    const uint64_t high = words();
    const uint64_t low = words();
    expected = (high << 32 | low) & ((uint64_t{1} << 35) - 1);
  } while (expected > maximum);
  EXPECT_EQ(NumpyRandom(77).interval(maximum), expected);
}

// Longer than the block that is drawn ahead; the plain loop is the definition.
TEST(NumpyRandom, LongShuffleEqualsThePlainLoop) {
  const int64_t size = 1009;
  std::vector<int64_t> expected(size);
  std::iota(expected.begin(), expected.end(), 0);
  NumpyRandom random(99);
  for (int64_t at = size - 1; at > 0; --at) std::swap(expected[at], expected[random.interval(at)]);
  EXPECT_EQ(shuffled_range(99, size), expected);
}

TEST(NumpyRandom, ShuffleOfNothingAndOfOneDrawsNothing) {
  NumpyRandom random(1234);
  std::vector<uint32_t> none, one{5};
  random.shuffle(std::span(none));
  random.shuffle(std::span(one));
  EXPECT_EQ(one.front(), 5u);
  EXPECT_EQ(random.interval(99), 47u);
}

}  // namespace
}  // namespace espalier::data
