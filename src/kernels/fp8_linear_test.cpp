#include "kernels/fp8_linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <tuple>

#include "kernels/fp8_reference_test.h"
#include "kernels/linear.h"
#include "kernels/reference_test.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace fp8_linear_test {

using fp8_reference::rounded;
using reference::expect_within;
using reference::product_bound;
using reference::random;
using reference::TestParam;
using spec::Fp8;
using spec::Fp8Format;

struct Shape {
  int64_t tokens, inputs, outputs;
};

class Fp8LinearTest : public testing::TestWithParam<std::tuple<Fp8, int>> {
 protected:
  static constexpr Shape kShapes[] = {{1, 1, 1}, {1, 7, 33}, {7, 33, 1}, {33, 7, 7}, {33, 33, 33}, {130, 65, 96}};
  Fp8 fp8() const { return std::get<0>(GetParam()); }
  Shape shape() const { return kShapes[std::get<1>(GetParam())]; }
};

// Three micro-batches beside products in double of operands that ATen has rounded.
TEST_P(Fp8LinearTest, MultipliesRoundedOperands) {
  const auto [tokens, inputs, outputs] = shape();
  TestParam weight(random({outputs, inputs}, at::kBFloat16, 1, 0.02)), bias(random({outputs}, at::kBFloat16, 2));
  tensor::GradQueue queue;
  const Fp8Format of_gradients = fp8() == Fp8::kHybrid ? Fp8Format::kE5M2 : Fp8Format::kE4M3;
  const at::Tensor w = rounded(weight.param.value, Fp8Format::kE4M3), b = bias.param.value.to(at::kDouble);
  at::Tensor dw = at::zeros({outputs, inputs}, at::kDouble), dw_absolute = dw.clone();
  at::Tensor db = at::zeros({outputs}, at::kDouble), db_absolute = db.clone();
  for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
    at::Tensor x = random({tokens, 1, inputs}, at::kBFloat16, 10 + micro_batch).requires_grad_(true);
    const at::Tensor dy = random({tokens, 1, outputs}, at::kBFloat16, 20 + micro_batch, 0.01);
    const at::Tensor y = linear(x, weight.param, &bias.param, queue, fp8());
    y.backward(dy);

    const at::Tensor rows = rounded(x, Fp8Format::kE4M3).view({tokens, inputs});
    const at::Tensor up = rounded(dy, of_gradients).view({tokens, outputs});
    expect_within(y.view({tokens, outputs}), rows.mm(w.t()) + b,
                  product_bound(rows.mm(w.t()) + b, rows.abs().mm(w.t().abs()) + b.abs(), inputs, at::kBFloat16), "y");
    expect_within(x.grad().view({tokens, inputs}), up.mm(w),
                  product_bound(up.mm(w), up.abs().mm(w.abs()), outputs, at::kBFloat16), "dx");
    dw += up.t().mm(rows);
    dw_absolute += up.t().abs().mm(rows.abs()) + 0.25;
    db += dy.to(at::kDouble).view({tokens, outputs}).sum(0);
    db_absolute += dy.to(at::kDouble).view({tokens, outputs}).abs().sum(0) + 0.25;
  }
  expect_within(weight.added(), dw, product_bound(dw, dw_absolute, 3 * tokens, at::kFloat), "dW");
  expect_within(bias.added(), db, product_bound(db, db_absolute, 3 * tokens, at::kFloat), "db");
}

INSTANTIATE_TEST_SUITE_P(FormatsAndShapes, Fp8LinearTest,
                         testing::Combine(testing::Values(Fp8::kE4M3, Fp8::kHybrid), testing::Range(0, 6)));

TEST(Fp8Linear, WithoutAGraphItComputesTheSame) {
  TestParam weight(random({9, 7}, at::kBFloat16, 1));
  tensor::GradQueue queue;
  const at::Tensor x = random({33, 7}, at::kBFloat16, 2);
  const at::Tensor y = linear(x.clone().requires_grad_(true), weight.param, nullptr, queue, Fp8::kHybrid);
  const at::Tensor plain = linear(x, weight.param, nullptr, queue, Fp8::kHybrid);
  EXPECT_FALSE(plain.requires_grad());
  EXPECT_TRUE(at::equal(plain, y));
}

TEST(Fp8Linear, KeepsTheRoundedInputAlone) {
  TestParam weight(random({9, 7}, at::kBFloat16, 1));
  tensor::GradQueue queue;
  const at::Tensor x = random({33, 7}, at::kBFloat16, 2);
  std::vector<at::Tensor> kept;
  const tensor::ObserveSaved observe(
      [&](const char*, const tensor::SavedTensor& saved) { kept.push_back(saved.tensor); });
  linear(x.clone().requires_grad_(true), weight.param, nullptr, queue, Fp8::kHybrid);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_TRUE(at::equal(kept[0].to(at::kDouble), rounded(x, Fp8Format::kE4M3)));
}

TEST(Fp8Linear, DeferredQueueAddsTheSameGradientsWhenDrained) {
  const at::Tensor x = random({33, 7}, at::kBFloat16, 1), up = random({33, 9}, at::kBFloat16, 2);
  TestParam now(random({9, 7}, at::kBFloat16, 3)), later(now.param.value);
  TestParam bias_now(random({9}, at::kBFloat16, 4)), bias_later(bias_now.param.value);
  tensor::GradQueue immediate, deferred;
  deferred.set_mode(tensor::GradQueue::Mode::kDeferred);
  linear(x.clone().requires_grad_(true), now.param, &bias_now.param, immediate, Fp8::kHybrid).backward(up);
  linear(x.clone().requires_grad_(true), later.param, &bias_later.param, deferred, Fp8::kHybrid).backward(up);
  EXPECT_EQ(later.added().abs().max().item<double>(), 0.0);
  EXPECT_EQ(bias_later.added().abs().max().item<double>(), 0.0);
  deferred.drain();
  EXPECT_TRUE(at::equal(now.param.grad, later.param.grad));
  EXPECT_TRUE(at::equal(bias_now.param.grad, bias_later.param.grad));
}

TEST(Fp8Linear, WhatIsNotFiniteIsSeenInTheResultAndTheGradients) {
  TestParam weight(random({9, 7}, at::kBFloat16, 3));
  tensor::GradQueue queue;
  at::Tensor x = random({33, 7}, at::kBFloat16, 1);
  x[3][2] = INFINITY;
  x.requires_grad_(true);
  const at::Tensor y = linear(x, weight.param, nullptr, queue, Fp8::kHybrid);
  EXPECT_TRUE(y.isnan()[3].all().item<bool>());
  y.backward(random({33, 9}, at::kBFloat16, 2));
  EXPECT_TRUE(weight.param.grad.isnan().any().item<bool>());
}

}  // namespace fp8_linear_test
}  // namespace espalier::kernels
