#include "kernels/linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <tuple>

#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace linear_test {

using reference::expect_within;
using reference::random;
using reference::rounding;
using reference::TestParam;

struct Shape {
  int64_t tokens, inputs, outputs;
};

at::Tensor wide(const at::Tensor& x) { return x.detach().to(at::kDouble); }

class LinearTest : public testing::TestWithParam<std::tuple<at::ScalarType, int>> {
 protected:
  static constexpr Shape kShapes[] = {{1, 1, 1}, {1, 7, 33}, {7, 33, 1}, {33, 7, 7}, {33, 33, 33}, {130, 65, 96}};
  at::ScalarType type() const { return std::get<0>(GetParam()); }
  Shape shape() const { return kShapes[std::get<1>(GetParam())]; }
  void check_micro_batches(bool stale) const;
};

void LinearTest::check_micro_batches(bool stale) const {
  const auto [tokens, inputs, outputs] = shape();
  TestParam weight(random({outputs, inputs}, type(), 1), stale), bias(random({outputs}, type(), 2), stale);
  tensor::GradQueue queue;
  at::Tensor dw = at::zeros({outputs, inputs}, at::kDouble), dw_absolute = dw.clone();
  at::Tensor db = at::zeros({outputs}, at::kDouble), db_absolute = db.clone();
  for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
    at::Tensor x = random({tokens, 1, inputs}, type(), 10 + micro_batch).requires_grad_(true);
    const at::Tensor dy = random({tokens, 1, outputs}, type(), 20 + micro_batch);
    const at::Tensor y = linear(x, weight.param, &bias.param, queue);
    ASSERT_TRUE(y.requires_grad());
    y.backward(dy);

    const at::Tensor rows = wide(x).view({tokens, inputs}), up = wide(dy).view({tokens, outputs});
    const at::Tensor w = wide(weight.param.value), b = wide(bias.param.value);
    expect_within(y.view({tokens, outputs}), rows.mm(w.t()) + b,
                  reference::product_bound(rows.mm(w.t()) + b, rows.abs().mm(w.t().abs()) + b.abs(), inputs, type()),
                  "y");
    expect_within(x.grad().view({tokens, inputs}), up.mm(w),
                  reference::product_bound(up.mm(w), up.abs().mm(w.abs()), outputs, type()), "dx");
    dw += up.t().mm(rows);
    dw_absolute += up.t().abs().mm(rows.abs()) + 0.25;
    db += up.sum(0);
    db_absolute += up.abs().sum(0) + 0.25;
  }
  expect_within(weight.added(), dw, reference::product_bound(dw, dw_absolute, 3 * tokens, at::kFloat), "dW");
  expect_within(bias.added(), db, reference::product_bound(db, db_absolute, 3 * tokens, at::kFloat), "db");
}

TEST_P(LinearTest, ForwardAndBackwardMatchDoubleOverMicroBatches) { check_micro_batches(/*stale=*/false); }
TEST_P(LinearTest, TheFirstMicroBatchOverwritesAStaleGradient) { check_micro_batches(/*stale=*/true); }

INSTANTIATE_TEST_SUITE_P(TypesAndShapes, LinearTest,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16, at::kHalf), testing::Range(0, 6)));

TEST(Linear, AnalyticGradientMatchesFiniteDifferences) {
  TestParam weight(random({7, 33}, at::kFloat, 1));
  tensor::GradQueue queue;
  at::Tensor x = random({33, 33}, at::kFloat, 2).requires_grad_(true);
  const at::Tensor up = random({33, 7}, at::kFloat, 3), step = random({33, 33}, at::kFloat, 4, 1e-2);
  linear(x, weight.param, nullptr, queue).backward(up);
  const auto objective = [&](const at::Tensor& at) {
    return (wide(linear(at, weight.param, nullptr, queue)) * wide(up)).sum().item<double>();
  };
  const at::Tensor base = x.detach();
  const double difference = (objective(base + step) - objective(base - step)) / 2;
  EXPECT_NEAR((wide(x.grad()) * wide(step)).sum().item<double>(), difference, 1e-4);
}

TEST(Linear, DeferredQueueAddsTheSameGradientWhenDrained) {
  const at::Tensor x0 = random({33, 7}, at::kBFloat16, 1), up = random({33, 9}, at::kBFloat16, 2);
  TestParam now(random({9, 7}, at::kBFloat16, 3)), later(now.param.value);
  tensor::GradQueue immediate, deferred;
  deferred.set_mode(tensor::GradQueue::Mode::kDeferred);
  linear(x0.clone().requires_grad_(true), now.param, nullptr, immediate).backward(up);
  linear(x0.clone().requires_grad_(true), later.param, nullptr, deferred).backward(up);
  EXPECT_EQ(later.added().abs().max().item<double>(), 0.0);
  deferred.drain();
  EXPECT_TRUE(at::equal(now.param.grad, later.param.grad));
}

TEST(Linear, WithoutGradientBuildsNoGraph) {
  TestParam weight(random({3, 5}, at::kFloat, 1));
  tensor::GradQueue queue;
  EXPECT_FALSE(linear(random({2, 5}, at::kFloat, 2), weight.param, nullptr, queue).requires_grad());
}

}  // namespace linear_test
}  // namespace espalier::kernels
