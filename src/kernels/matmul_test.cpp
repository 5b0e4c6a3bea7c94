#include "kernels/matmul.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "base/cpu_isa.h"
#include "kernels/matmul_blocked.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace matmul_test {

using reference::expect_within;
using reference::product_bound;
using reference::random;
using tensor::GradWrite;

struct Size {
  int64_t tokens, inputs, outputs;
};
constexpr Size kSizes[] = {{1, 1, 1},      {1, 7, 33},   {7, 33, 129}, {33, 129, 7},
                           {129, 500, 33}, {500, 33, 1}, {33, 96, 500}};
constexpr int kNumSizes = 7;
// More tokens than one block of the weight gradient; rows that need no padding; blocks of the depth, and more columns
// than a group of panels; slices of the depth, the last one short, and more rows and columns than one share of sums.
constexpr Size kBlockedSizes[] = {{1, 7, 33},      {33, 129, 7},    {129, 500, 33}, {1100, 96, 65}, {64, 768, 160},
                                  {40, 1000, 800}, {96, 2048, 320}, {70, 3000, 33}, {70, 4128, 65}, {1210, 4608, 560}};
constexpr int kNumBlockedSizes = 10;

at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }

// A gradient that must be overwritten.
at::Tensor nothing(at::IntArrayRef shape) { return at::full(shape, NAN, at::kFloat); }

// The same values at an address that is aligned to their type only.
at::Tensor unaligned(const at::Tensor& x) {
  const at::Tensor storage = at::empty({x.numel() + 1}, x.options());
  const at::Tensor view = storage.narrow(0, 1, x.numel()).view(x.sizes());
  view.copy_(x);
  return view;
}

// type x size x instruction set x alignment
using Parameters = std::tuple<at::ScalarType, int, CpuIsa, bool>;
class MatmulTest : public testing::TestWithParam<Parameters> {
 protected:
  void SetUp() override {
    if (!reference::has(std::get<2>(GetParam())))
      GTEST_SKIP() << "the machine reaches " << cpu_isa_name(best_cpu_isa());
    force_.emplace(std::get<2>(GetParam()));
  }
  at::Tensor operand(at::IntArrayRef shape, int64_t seed) const {
    const at::Tensor x = random(shape, type(), seed);
    return std::get<3>(GetParam()) ? unaligned(x) : x;
  }
  at::ScalarType type() const { return std::get<0>(GetParam()); }
  Size size() const { return kSizes[std::get<1>(GetParam())]; }

 private:
  std::optional<ForceCpuIsa> force_;
};

TEST_P(MatmulTest, ForwardEqualsDoubleWithinOneRounding) {
  const auto [tokens, inputs, outputs] = size();
  const at::Tensor x = operand({tokens, inputs}, 1), weight = operand({outputs, inputs}, 2),
                   bias = operand({outputs}, 3);
  const at::Tensor product = wide(x).mm(wide(weight).t()), absolute = wide(x).abs().mm(wide(weight).t().abs());
  expect_within(matmul_forward(x, weight, {}), product, product_bound(product, absolute, inputs, type()), "x W^T");
  const at::Tensor shifted = product + wide(bias);
  expect_within(matmul_forward(x, weight, bias), shifted,
                product_bound(shifted, absolute + wide(bias).abs(), inputs + 1, type()), "x W^T + b");
}

TEST_P(MatmulTest, InputGradientEqualsDoubleWithinOneRounding) {
  const auto [tokens, inputs, outputs] = size();
  const at::Tensor dy = operand({tokens, outputs}, 1), weight = operand({outputs, inputs}, 2);
  const at::Tensor product = wide(dy).mm(wide(weight)), absolute = wide(dy).abs().mm(wide(weight).abs());
  expect_within(matmul_input_grad(dy, weight), product, product_bound(product, absolute, outputs, type()), "dy W");
}

TEST_P(MatmulTest, WeightGradientIsAddedInFp32) {
  const auto [tokens, inputs, outputs] = size();
  const at::Tensor dy = operand({tokens, outputs}, 1), x = operand({tokens, inputs}, 2);
  const at::Tensor before = random({outputs, inputs}, at::kFloat, 3), grad = before.clone();
  matmul_weight_grad(dy, x, grad, GradWrite::kAdd);
  const at::Tensor product = wide(before) + wide(dy).t().mm(wide(x));
  const at::Tensor absolute = wide(before).abs() + wide(dy).t().abs().mm(wide(x).abs());
  expect_within(grad, product, product_bound(product, absolute, tokens, at::kFloat), "grad + dy^T x");
}

TEST_P(MatmulTest, WeightGradientIsOverwrittenWhateverItHolds) {
  const auto [tokens, inputs, outputs] = size();
  const at::Tensor dy = operand({tokens, outputs}, 1), x = operand({tokens, inputs}, 2);
  const at::Tensor grad = nothing({outputs, inputs});
  matmul_weight_grad(dy, x, grad, GradWrite::kOverwrite);
  const at::Tensor product = wide(dy).t().mm(wide(x));
  expect_within(grad, product, product_bound(product, wide(dy).t().abs().mm(wide(x).abs()), tokens, at::kFloat),
                "dy^T x");
  matmul_weight_grad(dy.narrow(0, 0, 0), x.narrow(0, 0, 0), grad, GradWrite::kOverwrite);
  EXPECT_EQ(grad.abs().max().item<float>(), 0) << "of no tokens";
}

TEST_P(MatmulTest, ColumnSumsAreAddedInFp32) {
  const auto [tokens, inputs, outputs] = size();
  const at::Tensor dy = operand({tokens, outputs}, 1), before = random({outputs}, at::kFloat, 3), grad = before.clone();
  add_column_sums(dy, grad);
  const at::Tensor sum = wide(before) + wide(dy).sum(0), absolute = wide(before).abs() + wide(dy).abs().sum(0);
  expect_within(grad, sum, product_bound(sum, absolute, tokens, at::kFloat), "grad + sums");
}

INSTANTIATE_TEST_SUITE_P(Bf16, MatmulTest,
                         testing::Combine(testing::Values(at::kBFloat16), testing::Range(0, kNumSizes),
                                          testing::Values(CpuIsa::kNeon, CpuIsa::kAvx2, CpuIsa::kAvx512,
                                                          CpuIsa::kNeonBf16, CpuIsa::kAvx512Bf16, CpuIsa::kAmx),
                                          testing::Bool()));
INSTANTIATE_TEST_SUITE_P(Others, MatmulTest,
                         testing::Combine(testing::Values(at::kFloat, at::kHalf), testing::Range(0, kNumSizes),
                                          testing::Values(CpuIsa::kGeneric, CpuIsa::kNeon, CpuIsa::kAvx2,
                                                          CpuIsa::kAvx512, CpuIsa::kAmx),
                                          testing::Bool()));

class BlockedMatmulTest : public testing::TestWithParam<std::tuple<int, CpuIsa>> {};

// Few tokens take another path above; here every size goes through the panels.
TEST_P(BlockedMatmulTest, PanelsEqualDoubleWithinOneRounding) {
  const auto [tokens, inputs, outputs] = kBlockedSizes[std::get<0>(GetParam())];
  const CpuIsa isa = std::get<1>(GetParam());
  if (!reference::has(isa)) GTEST_SKIP() << "the machine reaches " << cpu_isa_name(best_cpu_isa());
  const ForceCpuIsa force(isa);
  const Bf16Kernels& kernels = *bf16_kernels();
  const at::Tensor x = random({tokens, inputs}, at::kBFloat16, 1), weight = random({outputs, inputs}, at::kBFloat16, 2);
  const at::Tensor y = wide(x).mm(wide(weight).t());
  expect_within(blocked_forward(kernels, x, weight, {}), y,
                product_bound(y, wide(x).abs().mm(wide(weight).t().abs()), inputs, at::kBFloat16), "y");
  const at::Tensor dy = random({tokens, outputs}, at::kBFloat16, 3), dx = wide(dy).mm(wide(weight));
  expect_within(blocked_input_grad(kernels, dy, weight), dx,
                product_bound(dx, wide(dy).abs().mm(wide(weight).abs()), outputs, at::kBFloat16), "dx");
  const at::Tensor dw = wide(dy).t().mm(wide(x)), bound = wide(dy).t().abs().mm(wide(x).abs());
  const at::Tensor grad = nothing({outputs, inputs});
  blocked_weight_grad(kernels, dy, x, grad, GradWrite::kOverwrite);
  expect_within(grad, dw, product_bound(dw, bound, tokens, at::kFloat), "dw");
  blocked_weight_grad(kernels, dy, x, grad, GradWrite::kAdd);
  expect_within(grad, 2 * dw, product_bound(2 * dw, 2 * bound, 2 * tokens, at::kFloat), "dw twice");
}

TEST_P(BlockedMatmulTest, OneAndTwoThreadsGiveTheSameBits) {
  const auto [tokens, inputs, outputs] = kBlockedSizes[std::get<0>(GetParam())];
  const CpuIsa isa = std::get<1>(GetParam());
  if (!reference::has(isa)) GTEST_SKIP() << "the machine reaches " << cpu_isa_name(best_cpu_isa());
  const ForceCpuIsa force(isa);
  const at::Tensor x = random({tokens, inputs}, at::kBFloat16, 1), weight = random({outputs, inputs}, at::kBFloat16, 2);
  const at::Tensor dy = random({tokens, outputs}, at::kBFloat16, 3);
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> results;
  for (const int num_threads : {1, 2}) {
    at::set_num_threads(num_threads);
    const at::Tensor grad = nothing({outputs, inputs});
    blocked_weight_grad(*bf16_kernels(), dy, x, grad, GradWrite::kOverwrite);
    results.push_back(
        at::cat({blocked_forward(*bf16_kernels(), x, weight, {}).to(at::kFloat).view({-1}),
                 blocked_input_grad(*bf16_kernels(), dy, weight).to(at::kFloat).view({-1}), grad.view({-1})}));
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(results[0], results[1]));
}

INSTANTIATE_TEST_SUITE_P(Sizes, BlockedMatmulTest,
                         testing::Combine(testing::Range(0, kNumBlockedSizes),
                                          testing::Values(CpuIsa::kNeonBf16, CpuIsa::kAvx512Bf16, CpuIsa::kAmx)));

}  // namespace matmul_test
}  // namespace espalier::kernels
