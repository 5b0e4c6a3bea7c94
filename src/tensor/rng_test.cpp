#include "tensor/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "base/hash.h"

namespace espalier::tensor {
namespace rng_test {

void expect_words(const PhiloxBlock& block, std::vector<uint32_t> expected) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(block.word[i], expected[i]) << "word " << i;
}

// Known answers of philox4x32-10 in the Random123 distribution (kat_vectors).
TEST(Philox, GivesTheKnownAnswersOfItsAuthors) {
  expect_words(philox4x32({{0, 0}}, {{0, 0, 0, 0}}), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  expect_words(philox4x32({{kOnes, kOnes}}, {{kOnes, kOnes, kOnes, kOnes}}),
               {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_words(philox4x32({{0xa4093822, 0x299f31d0}}, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}),
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(Philox, KeyOfASiteIsTheHashOfSeedAndName) {
  const PhiloxKey key = philox_key(1234, "dropout/layers.7.mlp");
  EXPECT_EQ((uint64_t{key.word[1]} << 32) | key.word[0], hash64(std::string("dropout/layers.7.mlp"), 1234));
  std::set<uint64_t> keys;
  for (const uint64_t seed : {0, 1, 1234}) {
    for (const char* name : {"a", "b", "layers.1", "layers.11"}) {
      const PhiloxKey other = philox_key(seed, name);
      keys.insert((uint64_t{other.word[1]} << 32) | other.word[0]);
    }
  }
  EXPECT_EQ(keys.size(), 12u);
}

constexpr PhiloxKey kKey = {{0xa4093822, 0x299f31d0}};

TEST(FillNormal, ElementsComeFromTheirCounterByBoxAndMuller) {
  // The same formula in long double, from the words of the counter, with libm's long double functions.
  constexpr int64_t kCount = 10001;
  std::vector<float> values(kCount);
  fill_normal(kKey, 0.02, 0, kCount, values.data());
  for (uint64_t element = 0; element < kCount; ++element) {
    const PhiloxBlock bits = philox4x32(kKey, {{static_cast<uint32_t>(element / 2), 0, 0, 0}});
    const uint64_t first = (uint64_t{bits.word[0]} << 32 | bits.word[1]) >> 11;
    const uint64_t second = (uint64_t{bits.word[2]} << 32 | bits.word[3]) >> 11;
    const long double radius = 0.02L * sqrtl(-2 * logl((static_cast<long double>(first) + 1) / 0x1p53L));
    const long double angle = 2 * M_PIl * static_cast<long double>(second) / 0x1p53L;
    const long double want = radius * (element % 2 == 0 ? cosl(angle) : sinl(angle));
    EXPECT_NEAR(values[element], static_cast<double>(want), 0x1p-23 * std::abs(static_cast<double>(want))) << element;
  }
}

TEST(FillNormal, EveryInstructionSetGivesTheSameBits) {
  constexpr int64_t kFirst = 33, kCount = 100001;
  std::vector<std::vector<float>> of_isa;
  for (const CpuIsa isa : cpu_isas_of_machine()) {
    const ForceCpuIsa force(isa);
    fill_normal(kKey, 0.02, kFirst, kCount, of_isa.emplace_back(kCount).data());
    EXPECT_EQ(of_isa.back(), of_isa.front()) << cpu_isa_name(isa);
  }
}

TEST(FillNormal, FirstElementsOfAnAllZeroCounterAreTheDocumentedOnes) {
  // From 6627e8d5 e169c58d bc57ac4c 9b00dbd8, worked out with mpmath (docs/numerics.md).
  std::vector<float> values(2);
  fill_normal({{0, 0}}, 1.0, 0, 2, values.data());
  EXPECT_FLOAT_EQ(values[0], -0.121517976f);
  EXPECT_FLOAT_EQ(values[1], -1.35003266f);
}

TEST(FillNormal, AnyDivisionIntoRangesGivesTheSameBits) {
  constexpr int64_t kCount = 1023;
  std::vector<float> whole(kCount);
  fill_normal(kKey, 1, 0, kCount, whole.data());
  for (const int64_t step : {1, 2, 7, 33, 512}) {
    std::vector<float> parts(kCount, NAN);
    for (int64_t first = 0; first < kCount; first += step) {
      fill_normal(kKey, 1, first, std::min(step, kCount - first), parts.data() + first);
    }
    EXPECT_EQ(parts, whole) << step;
  }
  std::vector<float> far(3), farther(2);
  constexpr int64_t kFar = (int64_t{1} << 34) + 1;  // counters beyond 32 bits
  fill_normal(kKey, 1, kFar, 3, far.data());
  fill_normal(kKey, 1, kFar + 1, 2, farther.data());
  EXPECT_EQ(far[1], farther[0]);
  EXPECT_EQ(far[2], farther[1]);
  EXPECT_NE(far[0], whole[1]);
}

TEST(FillNormal, HasTheMomentsOfANormalDistribution) {
  constexpr int64_t kCount = 1 << 20;
  std::vector<float> values(kCount);
  fill_normal(kKey, 2.0, 0, kCount, values.data());
  double sums[5] = {};
  int64_t within_one = 0;
  for (const float value : values) {
    const double x = value / 2.0;
    for (int power = 1; power <= 4; ++power) sums[power] += std::pow(x, power);
    within_one += std::abs(x) < 1;
  }
  const double root = std::sqrt(static_cast<double>(kCount));
  // Five standard errors each: of x, x^2, x^3, x^4 (variances 1, 2, 15, 96), and of a share.
  EXPECT_NEAR(sums[1] / kCount, 0, 5 / root);
  EXPECT_NEAR(sums[2] / kCount, 1, 5 * std::sqrt(2) / root);
  EXPECT_NEAR(sums[3] / kCount, 0, 5 * std::sqrt(15) / root);
  EXPECT_NEAR(sums[4] / kCount, 3, 5 * std::sqrt(96) / root);
  EXPECT_NEAR(static_cast<double>(within_one) / kCount, std::erf(1 / std::sqrt(2.0)), 5 * 0.466 / root);
  double neighbours = 0;
  for (int64_t i = 0; i + 1 < kCount; ++i) neighbours += values[i] / 2.0 * (values[i + 1] / 2.0);
  EXPECT_NEAR(neighbours / kCount, 0, 5 / root);
}

}  // namespace rng_test
}  // namespace espalier::tensor
