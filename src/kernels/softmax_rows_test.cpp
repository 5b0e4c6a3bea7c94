#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/internal/row_dispatch.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace softmax_rows_test {

class SoftmaxRowsTest : public testing::TestWithParam<CpuIsa> {
 protected:
  const RowKernels& kernels() const {
    const ForceCpuIsa force(GetParam());
    return row_kernels();
  }
};

// The exponential alone: gradients of single logits under a known log-sum-exp.
TEST_P(SoftmaxRowsTest, ExponentialIsWithinTwoToMinus22Relative) {
  double worst = 0;
  for (int number = 0; number <= 93'383; ++number) {
    float logit = static_cast<float>(-87 + 0.000937 * number);
    const double expected = std::exp(static_cast<double>(logit));
    kernels().fp32.softmax_gradient_fp32({&logit, 1, -1}, {0.0f, 1.0f}, &logit);
    worst = std::max(worst, std::abs(logit - expected) / expected);
  }
  EXPECT_LT(worst, 0x1p-22);
}

TEST_P(SoftmaxRowsTest, BlocksOfAwkwardSizesGiveTheSumOfTheWholeRow) {
  std::vector<float> logits(500);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = 30 * std::sin(0.7f * static_cast<float>(i));
  double largest = -1e300, sum = 0;
  for (const float logit : logits) largest = std::max<double>(largest, logit);
  for (const float logit : logits) sum += std::exp(logit - largest);

  SoftmaxSums sums;
  int64_t first = 0;
  for (const int64_t count : {1, 7, 33, 129, 16, 32, 282}) {
    kernels().fp32.softmax_accumulate({logits.data() + first, count, 137 - first}, &sums);
    first += count;
  }
  ASSERT_EQ(first, 500);
  EXPECT_EQ(sums.largest, static_cast<float>(largest));
  EXPECT_NEAR(sums.sum, sum, sum * 1e-6);
  EXPECT_EQ(sums.label_logit, logits[137]);
}

TEST_P(SoftmaxRowsTest, LogitsAreRoundedToTheComputeType) {
  // 1 + 2^-8 is half-way between two bf16 values and goes to the even one, 1 + 3 2^-8 to 1 + 2^-6.
  for (const auto& [value, bf16] : {std::pair{1.00390625f, 1.0f}, std::pair{1.01171875f, 1.015625f}}) {
    float logit = value;
    SoftmaxSums sums;
    kernels().bf16.softmax_accumulate({&logit, 1, 0}, &sums);
    EXPECT_EQ(sums.label_logit, bf16);
    EXPECT_EQ(sums.largest, bf16);
  }
  float logit = 1.00048828125f;  // 1 + 2^-11: to fp16, even
  SoftmaxSums sums;
  kernels().fp16.softmax_accumulate({&logit, 1, 0}, &sums);
  EXPECT_EQ(sums.label_logit, 1.0f);
}

TEST_P(SoftmaxRowsTest, GradientIsProbabilityMinusLabelTimesScale) {
  std::vector<float> logits(33), expected(33);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = 0.25f * static_cast<float>(i) - 4;
  for (size_t i = 0; i < logits.size(); ++i) {
    expected[i] = static_cast<float>((std::exp(logits[i] - 4.5) - (i == 32 ? 1 : 0)) * 0.125);
  }
  std::vector<uint16_t> rounded(33);
  kernels().bf16.softmax_gradient({logits.data(), 33, 32}, {4.5f, 0.125f}, rounded.data());
  kernels().bf16.softmax_gradient_fp32({logits.data(), 33, 32}, {4.5f, 0.125f}, logits.data());
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_NEAR(logits[i], expected[i], std::abs(expected[i]) * 1e-6 + 1e-9) << i;
    const uint32_t bits = uint32_t{rounded[i]} << 16;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    EXPECT_NEAR(value, expected[i], std::abs(expected[i]) * 0x1p-8) << i;
  }
}

TEST_P(SoftmaxRowsTest, GradientOfTheLogSumIsTheProbabilityTimesIt) {
  std::vector<float> logits(33), expected(33);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = 0.25f * static_cast<float>(i) - 4;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double probability = std::exp(logits[i] - 4.5);
    expected[i] = static_cast<float>((probability - (i == 7 ? 1 : 0)) * 0.125 + probability * 0.0625);
  }
  kernels().fp32.softmax_gradient_fp32({logits.data(), 33, 7}, {4.5f, 0.125f, 0.0625f}, logits.data());
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(logits[i], expected[i], std::abs(expected[i]) * 1e-6 + 1e-9) << i;
}

TEST_P(SoftmaxRowsTest, ScaleZeroGivesZeroWhateverTheLogits) {
  std::vector<float> logits(17, __builtin_nanf(""));
  kernels().fp32.softmax_gradient_fp32({logits.data(), 17, 3}, {0.0f, 0.0f}, logits.data());
  for (const float value : logits) EXPECT_EQ(value, 0.0f);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, SoftmaxRowsTest, testing::ValuesIn(reference::instruction_sets()));

}  // namespace softmax_rows_test
}  // namespace espalier::kernels
