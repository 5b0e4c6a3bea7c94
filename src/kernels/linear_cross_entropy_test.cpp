#include "kernels/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "base/cpu_isa.h"
#include "kernels/cross_entropy_blocks.h"
#include "kernels/matmul_blocked.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace linear_cross_entropy_test {

using reference::expect_within;
using reference::instruction_sets;
using reference::random;
using reference::rounding;
using reference::TestParam;

at::Tensor wide(const at::Tensor& x) { return x.detach().to(at::kDouble); }

struct Case {
  int64_t tokens, hidden, vocabulary;
};

// Labels that include the first and the last id; weights that include 0 and a fraction.
at::Tensor labels_for(const Case& size) {
  at::Tensor labels = at::arange(size.tokens, at::kLong).mul(13).remainder(size.vocabulary);
  labels[size.tokens - 1] = size.vocabulary - 1;
  return labels;
}
at::Tensor mask_for(const Case& size) {
  at::Tensor mask = at::ones({size.tokens}, at::kFloat);
  for (int64_t token = 2; token < size.tokens; token += 3) mask[token] = 0.0f;
  if (size.tokens > 4) mask[4] = 0.5f;
  return mask;
}

struct Oracle {
  at::Tensor losses, sum, dx, dw;
};

// Plain ATen in double, differentiated by autograd. Logits are rounded to the compute type, as promised; the rounding
// is a constant shift for autograd.
Oracle oracle(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels, const at::Tensor& mask,
              double up) {
  at::Tensor x64 = wide(x).requires_grad_(true), w64 = wide(weight).requires_grad_(true);
  const at::Tensor exact = x64.mm(w64.t());
  const at::Tensor logits = exact + (exact.detach().to(x.scalar_type()).to(at::kDouble) - exact.detach());
  const at::Tensor losses = -at::log_softmax(logits, 1).gather(1, labels.unsqueeze(1)).squeeze(1);
  const at::Tensor sum = (losses * mask.to(at::kDouble)).sum();
  (sum * up).backward();
  return {losses.detach(), sum.detach(), x64.grad(), w64.grad()};
}

class LinearCrossEntropyTest : public testing::TestWithParam<std::tuple<at::ScalarType, int, CpuIsa>> {
 protected:
  void SetUp() override {
    const CpuIsa isa = std::get<2>(GetParam());
    if (!reference::has(isa)) GTEST_SKIP() << "the machine reaches " << cpu_isa_name(best_cpu_isa());
    force_.emplace(isa);
  }

  static constexpr Case kCases[] = {{1, 1, 2},     {1, 33, 7},      {7, 7, 33},      {33, 33, 129},
                                    {300, 33, 65}, {259, 64, 1031}, {1050, 40, 4130}};
  at::ScalarType type() const { return std::get<0>(GetParam()); }
  Case size() const { return kCases[std::get<1>(GetParam())]; }
  void check_micro_batches(bool stale) const;

 private:
  std::optional<ForceCpuIsa> force_;
};

void LinearCrossEntropyTest::check_micro_batches(bool stale) const {
  const Case size = this->size();
  const double unit = rounding(type());
  TestParam weight(random({size.vocabulary, size.hidden}, type(), 1), stale);
  tensor::GradQueue queue;
  const at::Tensor labels = labels_for(size), mask = mask_for(size);
  at::Tensor dw = at::zeros({size.vocabulary, size.hidden}, at::kDouble), dw_bound = dw.clone();
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    at::Tensor x = random({size.tokens, size.hidden}, type(), 10 + micro_batch, 0.3).requires_grad_(true);
    const double up = micro_batch == 0 ? 1.0 : 0.125;
    const TokenLosses result = linear_cross_entropy(x, weight.param, {labels, mask}, queue);
    ASSERT_TRUE(result.sum.requires_grad());
    ASSERT_FALSE(result.per_token.requires_grad());
    (result.sum * up).backward();

    const Oracle want = oracle(x, weight.param.value, labels, mask, up);
    // A logit whose fp32 sum rounds to the neighbour of the exact one's rounding moves the loss by up to one unit.
    const at::Tensor largest = at::abs(wide(x)).mm(at::abs(wide(weight.param.value)).t()).amax({1});
    const at::Tensor slack = largest * (2 * unit * (type() == at::kFloat ? 16 : 1)) + 1e-6;
    expect_within(result.per_token, want.losses, slack, "losses");
    EXPECT_NEAR(result.sum.item<double>(), want.sum.item<double>(), slack.sum().item<double>() * 0.1 + 1e-5);
    // Gradients of logits are rounded to the compute type before they enter the products.
    const double relative = type() == at::kFloat ? 1e-5 : 6 * unit;
    expect_within(x.grad(), want.dx, at::full({1}, relative * want.dx.norm().item<double>() + 1e-7, at::kDouble), "dx");
    dw += want.dw;
    dw_bound += relative * want.dw.norm() + 1e-6;
  }
  expect_within(weight.added(), dw, dw_bound, "dW");
}

TEST_P(LinearCrossEntropyTest, LossAndGradientsMatchDoubleAutogradOverMicroBatches) {
  check_micro_batches(/*stale=*/false);
}
TEST_P(LinearCrossEntropyTest, TheFirstMicroBatchOverwritesAStaleGradient) { check_micro_batches(/*stale=*/true); }

INSTANTIATE_TEST_SUITE_P(Bf16, LinearCrossEntropyTest,
                         testing::Combine(testing::Values(at::kBFloat16), testing::Range(0, 7),
                                          testing::Values(CpuIsa::kNeon, CpuIsa::kAvx2, CpuIsa::kAvx512,
                                                          CpuIsa::kNeonBf16, CpuIsa::kAvx512Bf16, CpuIsa::kAmx)));
INSTANTIATE_TEST_SUITE_P(Others, LinearCrossEntropyTest,
                         testing::Combine(testing::Values(at::kFloat, at::kHalf), testing::Range(0, 7),
                                          testing::Values(CpuIsa::kNeon, CpuIsa::kAvx2, CpuIsa::kAvx512)));

// Where fp32 products are ours, in whichever type the operands are, nothing depends on how the threads divide them.
TEST(LinearCrossEntropy, HasTheSameBitsForAnyNumberOfThreadsWhereFp32ProductsAreOurs) {
  const Case size{70, 33, 12'000};
  const int threads = at::get_num_threads();
  for (const CpuIsa isa : instruction_sets())
    for (const at::ScalarType type : {at::kFloat, at::kHalf}) {
      if (!multiplies_fp32(isa)) continue;
      const ForceCpuIsa force(isa);
      std::vector<at::Tensor> results;
      for (const int num_threads : {1, 2, 3}) {
        at::set_num_threads(num_threads);
        TestParam weight(random({size.vocabulary, size.hidden}, type, 1));
        tensor::GradQueue queue;
        const at::Tensor x = random({size.tokens, size.hidden}, type, 2).requires_grad_(true);
        linear_cross_entropy(x, weight.param, {labels_for(size), mask_for(size)}, queue).sum.backward();
        results.push_back(at::cat({x.grad().to(at::kFloat).view({-1}), weight.param.grad.view({-1})}));
      }
      at::set_num_threads(threads);
      EXPECT_TRUE(at::equal(results[0], results[1])) << cpu_isa_name(isa) << " " << type;
      EXPECT_TRUE(at::equal(results[0], results[2])) << cpu_isa_name(isa) << " " << type;
    }
}

// With the identity for x, logits are the weights and the gradient of the weights is that of the logits, to the bit.
TEST(LinearCrossEntropy, GradientsOfLogitsAreRoundedWhereProductsTakeBf16AndNowhereElse) {
  const Case size{33, 33, 129};
  for (const CpuIsa isa :
       {CpuIsa::kNeon, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kNeonBf16, CpuIsa::kAvx512Bf16, CpuIsa::kAmx})
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      if (!reference::has(isa)) continue;
      const ForceCpuIsa force(isa);
      TestParam weight(random({size.vocabulary, size.hidden}, type, 1));
      tensor::GradQueue queue;
      const at::Tensor x = at::eye(size.tokens).to(type).requires_grad_(true), labels = labels_for(size);
      linear_cross_entropy(x, weight.param, {labels, at::ones({size.tokens}, at::kFloat)}, queue).sum.backward();
      const at::Tensor target =
          at::zeros({size.tokens, size.vocabulary}, at::kDouble).scatter_(1, labels.unsqueeze(1), 1);
      const at::Tensor probability = at::softmax(wide(weight.param.value).t(), 1);
      const at::Tensor wanted = (probability - target).t(), terms = (probability + target).t();
      const at::Tensor found = weight.added().to(at::kFloat);
      const double error = (wide(found) - wanted).abs().div(wanted.abs()).max().item<double>();
      if (type == at::kBFloat16 && multiplies_bf16(isa)) {
        EXPECT_TRUE(at::equal(found, found.to(type).to(at::kFloat))) << cpu_isa_name(isa);
        EXPECT_LT(error, rounding(type) * 1.01) << cpu_isa_name(isa);
      } else {
        // fp32 rounds the terms of a difference, which may be much smaller than they are, and the sum with the gradient
        // that was there before (below 1 in magnitude). Rounding to bf16 or fp16 would be a hundred times as much.
        const double error_of_terms =
            ((wide(found) - wanted).abs() - std::ldexp(1, -24)).div(terms).max().item<double>();
        EXPECT_LT(error_of_terms, 1e-5) << cpu_isa_name(isa) << " " << type;
      }
    }
}

TEST(LinearCrossEntropy, GradientMatchesFiniteDifferences) {
  const Case size{33, 7, 129};
  TestParam weight(random({size.vocabulary, size.hidden}, at::kFloat, 1));
  tensor::GradQueue queue;
  at::Tensor x = random({size.tokens, size.hidden}, at::kFloat, 2).requires_grad_(true);
  const at::Tensor labels = labels_for(size), mask = mask_for(size);
  linear_cross_entropy(x, weight.param, {labels, mask}, queue).sum.backward();
  const at::Tensor step = random({size.tokens, size.hidden}, at::kFloat, 3, 3e-3), base = x.detach();
  const auto objective = [&](const at::Tensor& at) {
    return (wide(linear_cross_entropy(at, weight.param, {labels, mask}, queue).per_token) * wide(mask))
        .sum()
        .item<double>();
  };
  const double difference = (objective(base + step) - objective(base - step)) / 2;
  EXPECT_NEAR((wide(x.grad()) * wide(step)).sum().item<double>(), difference, 2e-5);
}

TEST(LinearCrossEntropy, MaskedTokensGiveNoLossAndExactlyZeroGradient) {
  const Case size{33, 7, 65};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    TestParam weight(random({size.vocabulary, size.hidden}, type, 1));
    tensor::GradQueue queue;
    at::Tensor x = random({size.tokens, size.hidden}, type, 2).requires_grad_(true);
    const TokenLosses result =
        linear_cross_entropy(x, weight.param, {labels_for(size), at::zeros({size.tokens}, at::kFloat)}, queue);
    result.sum.backward();
    EXPECT_EQ(result.sum.item<double>(), 0.0);
    EXPECT_GT(result.per_token.min().item<double>(), 0.0);
    EXPECT_EQ(x.grad().to(at::kFloat).abs().max().item<double>(), 0.0);
    EXPECT_EQ(weight.added().abs().max().item<double>(), 0.0);
  }
}

TEST(LinearCrossEntropy, LogitsKeptOrComputedAgainGiveTheSameBits) {
  const Case size{33, 40, 4130};
  const at::Tensor x = random({size.tokens, size.hidden}, at::kFloat, 1);
  const at::Tensor weight = random({size.vocabulary, size.hidden}, at::kFloat, 2), labels = labels_for(size);
  const at::Tensor scales = mask_for(size);
  const CrossEntropyInput input{x, weight, labels};
  std::vector<at::Tensor> results;
  for (const bool keep : {false, true}) {
    const CrossEntropyRows rows = wide_cross_entropy_forward(input, keep);
    EXPECT_EQ(rows.kept_logits.numel(), keep ? size.tokens * size.vocabulary : 0);
    const at::Tensor log_sum_exp = at::empty({size.tokens}, at::kFloat);
    for (int64_t token = 0; token < size.tokens; ++token)
      log_sum_exp[token] = rows.sums[token].largest + std::log(rows.sums[token].sum);
    const at::Tensor weight_grad = at::zeros({size.vocabulary, size.hidden}, at::kFloat);
    const at::Tensor dx =
        wide_cross_entropy_backward(input, {log_sum_exp, scales, {}, rows.kept_logits, true, weight_grad});
    results.push_back(at::cat({dx, weight_grad}));
  }
  EXPECT_TRUE(at::equal(results[0], results[1]));
}

// All logits, those of the first blocks only, or none.
TEST(LinearCrossEntropy, Bf16LogitsKeptOrComputedAgainGiveTheSameBits) {
  const Bf16Kernels* kernels = bf16_kernels();
  if (kernels == nullptr) GTEST_SKIP() << "no bf16 products on this machine";
  const Case size{33, 40, 4130};
  const at::Tensor x = random({size.tokens, size.hidden}, at::kBFloat16, 1);
  const at::Tensor weight = random({size.vocabulary, size.hidden}, at::kBFloat16, 2), labels = labels_for(size);
  const at::Tensor bias = random({size.vocabulary}, at::kBFloat16, 3), scales = mask_for(size);
  const CrossEntropyInput input{x, weight, labels, bias};
  std::vector<at::Tensor> results;
  for (const int64_t columns : {int64_t{0}, int64_t{2048}, size.vocabulary}) {
    const CrossEntropyRows rows = panel_cross_entropy_forward(*kernels, input, 2 * size.tokens * columns);
    EXPECT_EQ(rows.kept_logits.numel(), size.tokens * columns);
    const at::Tensor log_sum_exp = at::empty({size.tokens}, at::kFloat);
    for (int64_t token = 0; token < size.tokens; ++token)
      log_sum_exp[token] = rows.sums[token].largest + std::log(rows.sums[token].sum);
    const at::Tensor weight_grad = at::zeros({size.vocabulary, size.hidden}, at::kFloat);
    const at::Tensor bias_grad = at::zeros({size.vocabulary}, at::kFloat);
    const at::Tensor dx = panel_cross_entropy_backward(
        *kernels, input, {log_sum_exp, scales, 0.1f * scales, rows.kept_logits, true, weight_grad, bias_grad});
    results.push_back(at::cat({dx.to(at::kFloat).flatten(), weight_grad.flatten(), bias_grad}));
  }
  EXPECT_GT(results[0].abs().sum().item<double>(), 0);
  for (size_t kept = 1; kept < results.size(); ++kept) EXPECT_TRUE(at::equal(results[0], results[kept])) << kept;
}

TEST(LinearCrossEntropy, SecondBackwardThroughAKeptGraphGivesTheSameGradient) {
  const Case size{33, 40, 130};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    TestParam weight(random({size.vocabulary, size.hidden}, type, 1));
    tensor::GradQueue queue;
    at::Tensor x = random({size.tokens, size.hidden}, type, 2).requires_grad_(true);
    const TokenLosses result = linear_cross_entropy(x, weight.param, {labels_for(size), mask_for(size)}, queue);
    result.sum.backward({}, /*retain_graph=*/true);
    const at::Tensor first = x.grad().clone();
    x.mutable_grad().reset();
    result.sum.backward();
    EXPECT_TRUE(at::equal(first, x.grad()));
  }
}

TEST(LinearCrossEntropy, LargeLogitsDoNotOverflow) {
  TestParam weight(at::full({65, 1}, 100.0, at::kFloat));
  weight.param.value[3] = 200.0f;
  tensor::GradQueue queue;
  const TokenLosses result = linear_cross_entropy(at::full({1, 1}, 100.0, at::kFloat), weight.param,
                                                  {at::full({1}, 3, at::kLong), at::ones({1}, at::kFloat)}, queue);
  EXPECT_EQ(result.sum.item<double>(), 0.0);
}

TEST(LinearCrossEntropy, WithoutGradientBuildsNoGraph) {
  const Case size{7, 7, 33};
  TestParam weight(random({size.vocabulary, size.hidden}, at::kBFloat16, 1));
  tensor::GradQueue queue;
  const at::Tensor x = random({size.tokens, size.hidden}, at::kBFloat16, 2);
  EXPECT_FALSE(linear_cross_entropy(x, weight.param, {labels_for(size), mask_for(size)}, queue).sum.requires_grad());
}

}  // namespace linear_cross_entropy_test
}  // namespace espalier::kernels
