#include "data/numpy_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "data/internal/numpy_words.h"

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

// numpy's legacy generator by the standard library and its shuffle by the book: what every instruction set must give.
class PlainNumpy {
 public:
  explicit PlainNumpy(uint32_t seed) : words_(seed) {}

  uint32_t word() { return static_cast<uint32_t>(words_()); }

  std::vector<int64_t> shuffled_range(int64_t size) {
    std::vector<int64_t> values(static_cast<size_t>(size));
    std::iota(values.begin(), values.end(), 0);
    for (size_t at = values.size(); at-- > 1;) {
      size_t mask = 1, partner;
      while (mask < at) mask = 2 * mask + 1;
      do partner = word() & mask;
      while (partner > at);
      std::swap(values[at], values[partner]);
    }
    return values;
  }

 private:
  std::mt19937 words_;
};

class NumpyRandomOnEachIsa : public testing::TestWithParam<CpuIsa> {
  const ForceCpuIsa force_{GetParam()};
};

TEST_P(NumpyRandomOnEachIsa, WordsAreThoseOfTheStandardLibrary) {
  internal::NumpyWords words(4321);
  PlainNumpy plain(4321);
  for (int at = 0; at < 3 * 624 + 5; ++at) ASSERT_EQ(words.take(), plain.word()) << "word " << at;
}

// Around what is drawn at once, a block of words, a block of partners, and where the mask changes.
TEST_P(NumpyRandomOnEachIsa, ShuffleEqualsThePlainLoop) {
  for (const int64_t size : {1,    2,    3,    7,    33,   47,   48,   49,    50,    95,    96,    97,     127,   128,
                             129,  255,  256,  257,  624,  625,  1009, 2047,  2048,  2049,  2050,  2111,   2112,  2113,
                             4095, 4096, 4097, 4159, 4160, 4161, 8193, 32768, 65535, 65536, 65537, 131072, 131073})
    for (const int words_before : {0, 17, 623}) {
      NumpyRandom random(99), ahead(99);
      PlainNumpy plain(99);
      for (int at = 0; at < words_before; ++at) random.interval(0xffffffffu), ahead.interval(0xffffffffu), plain.word();
      std::vector<int32_t> values(static_cast<size_t>(size));
      std::iota(values.begin(), values.end(), 0);
      random.shuffle(std::span(values));
      ahead.skip_shuffle(values.size());
      const std::vector<int64_t> expected = plain.shuffled_range(size);
      ASSERT_TRUE(std::equal(values.begin(), values.end(), expected.begin(), expected.end()))
          << size << " values after " << words_before << " words";
      const uint32_t next = plain.word();
      ASSERT_EQ(random.interval(0xffffffffu), next) << size << " values after " << words_before << " words";
      ASSERT_EQ(ahead.interval(0xffffffffu), next) << size << " values after " << words_before << " words";
    }
}

// Every maximum from 1 on, many of them in doubt because so few values are possible.
TEST_P(NumpyRandomOnEachIsa, EverySmallShuffleEqualsThePlainLoop) {
  for (int64_t size = 1; size <= 700; ++size) {
    std::vector<uint32_t> values(static_cast<size_t>(size));
    std::iota(values.begin(), values.end(), 0);
    NumpyRandom(static_cast<uint32_t>(size)).shuffle(std::span(values));
    const std::vector<int64_t> expected = PlainNumpy(static_cast<uint32_t>(size)).shuffled_range(size);
    ASSERT_TRUE(std::equal(values.begin(), values.end(), expected.begin(), expected.end())) << size << " values";
  }
}

INSTANTIATE_TEST_SUITE_P(All, NumpyRandomOnEachIsa,
                         testing::ValuesIn(cpu_isas_of_machine().begin(), cpu_isas_of_machine().end()),
                         [](const auto& isa) { return std::string(cpu_isa_name(isa.param)); });

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
