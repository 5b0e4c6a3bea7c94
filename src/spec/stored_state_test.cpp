#include "spec/stored_state.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "spec/state_storage.h"
#include "spec/stored_state_reference_test.h"

namespace espalier::spec {
namespace stored_state_test {

struct Unit {};
using Moment = StateTensor::Moment;

std::vector<float> values_of(const std::vector<uint8_t>& block, bool has_sign) {
  std::vector<float> values(kMomentBlock);
  load_block<Unit>(block.data(), has_sign, values.data());
  return values;
}
std::vector<uint8_t> block_of(const std::vector<float>& values, bool has_sign, const std::vector<uint32_t>& random) {
  std::vector<uint8_t> block(kMomentBlockBytes);
  store_block<Unit>(values.data(), random.data(), 0, has_sign, block.data());
  return block;
}
std::vector<uint32_t> all(uint32_t random) { return std::vector<uint32_t>(kMomentBlock, random); }

// Values of a block spread over `octaves` powers of two.
std::vector<float> spread(std::mt19937& draw, double octaves, double largest, bool has_sign) {
  std::uniform_real_distribution<double> exponent(-octaves, 0);
  std::vector<float> values;
  for (int64_t i = 0; i < kMomentBlock; ++i) {
    const double magnitude = largest * std::exp2(exponent(draw));
    values.push_back(static_cast<float>(has_sign && draw() % 2 == 0 ? -magnitude : magnitude));
  }
  return values;
}

TEST(MomentBlocks, HoldOneOfTheTwoNumbersBesideEachValue) {
  std::mt19937 draw(7);
  for (const bool has_sign : {true, false})
    for (const double octaves : {0.5, 8.0, 20.0, 40.0})
      for (const double largest : {1e-20, 1.0, 3.7e5})
        for (int repeat = 0; repeat < 20; ++repeat) {
          std::vector<float> values = spread(draw, octaves, largest, has_sign);
          values[static_cast<size_t>(repeat)] = 0;
          std::vector<uint32_t> random;
          for (int64_t i = 0; i < kMomentBlock; ++i) random.push_back(draw() & 0xFFFF);
          const std::vector<float> found = values_of(block_of(values, has_sign, random), has_sign);
          const std::vector<double> expected = reference::rounded_block(values, has_sign, random);
          for (size_t i = 0; i < values.size(); ++i)
            ASSERT_EQ(found[i], expected[i]) << values[i] << " with " << random[i] << ", sign " << has_sign;
        }
}

TEST(MomentBlocks, AreExactInTheMean) {
  std::mt19937 draw(3);
  const std::vector<float> values = spread(draw, 18, 1, true);
  std::vector<double> sums(values.size());
  for (uint32_t random = 0; random < 1 << 16; ++random) {
    const std::vector<float> found = values_of(block_of(values, true, all(random)), true);
    for (size_t i = 0; i < values.size(); ++i) sums[i] += found[i];
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const double unit = std::max(std::abs(values[i]) / 8.0, std::exp2(-15));
    EXPECT_NEAR(sums[i] / 65536, values[i], unit * 0x1p-15) << i;
  }
}

TEST(MomentBlocks, ThatDidNotMoveStayAsTheyAre) {
  std::mt19937 draw(5);
  for (const bool has_sign : {true, false}) {
    const std::vector<float> once = values_of(block_of(spread(draw, 10, 1, has_sign), has_sign, all(0x1234)), has_sign);
    for (const uint32_t random : {0u, 0x8000u, 0xFFFFu})
      EXPECT_EQ(values_of(block_of(once, has_sign, all(random)), has_sign), once);
  }
}

TEST(MomentBlocks, KeepSecondMomentsAboveZero) {
  std::vector<float> values(kMomentBlock, 1e-30F);
  values[0] = 1, values[1] = 0;
  const std::vector<float> found = values_of(block_of(values, false, all(0)), false);
  EXPECT_EQ(found[1], 0);
  for (size_t i = 2; i < found.size(); ++i) EXPECT_GT(found[i], 0);
}

TEST(MomentBlocks, OfZerosAreZerosAndBeginSo) {
  EXPECT_EQ(values_of(std::vector<uint8_t>(kMomentBlockBytes), true), std::vector<float>(kMomentBlock));
  const std::vector<float> zeros(kMomentBlock);
  EXPECT_EQ(values_of(block_of(zeros, true, all(0xFFFF)), true), zeros);
  EXPECT_EQ(values_of(block_of(zeros, false, all(0xFFFF)), false), zeros);
}

TEST(MomentBlocks, ThatAreNotFiniteSaySo) {
  uint32_t bits = 0x7FFFFFFF;  // the NaN of the largest payload
  float nan = 0;
  memcpy(&nan, &bits, sizeof nan);
  for (const float bad : {std::numeric_limits<float>::infinity(), nan, -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values(kMomentBlock, 1.0F);
    values[31] = bad;
    const std::vector<uint8_t> block = block_of(values, true, all(0));
    EXPECT_EQ(block[0], kBlockNotFinite);
    EXPECT_TRUE(std::isnan(values_of(block, true)[31]));
  }
}

TEST(Bf16Moments, AreRoundedAtRandomAndKeepNan) {
  std::mt19937 draw(11);
  for (const float value : spread(draw, 30, 100, true)) {
    const uint32_t random = draw() & 0xFFFF;
    const uint32_t bits = MomentBits<Unit>::bits_of(value);
    EXPECT_EQ(MomentBits<Unit>::float_of(uint32_t{MomentBits<Unit>::to_bf16(bits, random)} << 16),
              reference::rounded_bf16(value, random))
        << value << " " << random;
  }
  EXPECT_EQ(MomentBits<Unit>::to_bf16(0x7FFFFFFF, 0xFFFF), 0x7FC0);
  EXPECT_EQ(MomentBits<Unit>::to_bf16(0xFF800000, 0xFFFF), 0xFF80);  // -infinity
}

ParamSpec matrix(std::vector<int64_t> shape, Placement placement) {
  return {.name = "matrix", .shape = std::move(shape), .tensor_placement = std::move(placement)};
}

TEST(StoredStates, HaveBlocksWhereRowsHaveWholeOnes) {
  StateTensor moment = kFirstMoment;
  moment.type = StateType::kFp8;
  EXPECT_EQ(stored_type(moment, matrix({33, 64}, {})), StateType::kFp8);
  EXPECT_EQ(stored_type(moment, matrix({64, 33}, {})), StateType::kFp32);
  EXPECT_EQ(stored_type(moment, matrix({64}, {})), StateType::kFp32);
  EXPECT_EQ(stored_shape(StateType::kFp8, {33, 64}), (std::vector<int64_t>{33, 66}));
  EXPECT_EQ(stored_shape(StateType::kBf16, {33, 64}), (std::vector<int64_t>{33, 64}));
  const std::vector<Extent> found = stored_extents(StateType::kFp8, {{64, 0, 32}, {128, 32, 64}});
  EXPECT_EQ(found, (std::vector<Extent>{{66, 0, 33}, {132, 33, 66}}));
  EXPECT_EQ(stored_bytes(StateType::kFp8), 33.0 / 32);
}

TEST(StoredStates, AreNotCutWithinABlock) {
  const OptimizerKind& kind = optimizer_kind({.optimizer = OptimizerType::kAdam8bit});
  const auto cut = [&](int64_t columns, int64_t size) {
    return cut_moment_blocks(kind, {matrix({7, columns}, Placement::split(1, {columns}))}, size);
  };
  EXPECT_EQ(cut(128, 4), std::vector<std::string>());
  EXPECT_EQ(cut(128, 8), std::vector<std::string>{"matrix"});
  EXPECT_EQ(cut(96, 2), std::vector<std::string>{"matrix"});
  EXPECT_EQ(cut(33, 3), std::vector<std::string>()) << "fp32";
  EXPECT_EQ(cut_moment_blocks(kind, {matrix({7, 32}, Placement::split(0, {7}))}, 7), std::vector<std::string>());
}

TEST(StoredStates, AreWidenedAndNarrowedToTheNearest) {
  std::mt19937 draw(2);
  const std::vector<float> values = spread(draw, 6, 1, true);
  for (const StateType type : {StateType::kFp32, StateType::kBf16, StateType::kFp8}) {
    std::vector<uint8_t> stored(4 * kMomentBlock);
    std::vector<float> found(kMomentBlock);
    narrow_state(type, Moment::kFirst, values.data(), kMomentBlock, stored.data());
    widen_state(type, Moment::kFirst, stored.data(), kMomentBlock, found.data());
    const double unit = type == StateType::kFp32 ? 0 : type == StateType::kBf16 ? 0x1p-8 : 0x1p-4;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_LE(std::abs(found[i] - values[i]), unit * std::abs(values[i]) * 1.0001) << i;
  }
}

}  // namespace stored_state_test
}  // namespace espalier::spec
