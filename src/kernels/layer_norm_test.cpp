#include "kernels/layer_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <tuple>

#include "base/error.h"
#include "kernels/reference_test.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace layer_norm_test {

using reference::expect_within;
using reference::random;
using reference::rounded;
using reference::StreamTypes;
using reference::TestParam;

at::Tensor wide(const at::Tensor& x) { return x.detach().to(at::kDouble); }

// Plain ATen autograd in double, and what rounding in fp32 may change. Sums run in 64 lanes.
struct Oracle {
  Oracle(const at::Tensor& x_in, const at::Tensor& w, const at::Tensor& b, const at::Tensor& dy_in, double epsilon) {
    const int64_t columns = w.size(0);
    at::Tensor x = wide(x_in).requires_grad_(), weight = wide(w).requires_grad_(), bias = wide(b).requires_grad_();
    y = at::layer_norm(x, {columns}, weight, bias, epsilon);
    const at::Tensor dy = wide(dy_in);
    y.backward(dy);
    y = y.detach();
    dx = x.grad(), dweight = weight.grad(), dbias = bias.grad();

    const at::NoGradGuard no_grad;
    const double unit = 0x1p-24 * (static_cast<double>(columns) / 64 + 10);
    const at::Tensor mean = x.mean(-1, true);
    const at::Tensor rstd = 1 / at::sqrt((x - mean).pow(2).mean(-1, true) + epsilon);
    const at::Tensor n = (x - mean) * rstd, g = dy * weight;
    const at::Tensor n_error = unit * (x.abs().amax(-1, true) * rstd + 2 * n.abs());
    y_error = n_error * weight.abs() + 2 * 0x1p-24 * ((n * weight).abs() + bias.abs());
    const at::Tensor mean_gn = (g * n).mean(-1, true).abs(), mean_absolute = (g * n).abs().mean(-1, true);
    const at::Tensor mean_gn_error = (g.abs() * n_error).mean(-1, true) + unit * mean_absolute;
    dx_error =
        rstd * (unit * (g.abs() + g.abs().mean(-1, true)) + n_error * mean_gn + (n.abs() + n_error) * mean_gn_error) +
        4 * unit * rstd * (g.abs() + g.abs().mean(-1, true) + n.abs() * mean_absolute);
    const double rows = static_cast<double>(x.numel() / columns);
    dweight_error = (dy.abs() * n_error).view({-1, columns}).sum(0) +
                    0x1p-24 * (rows + 2) * (dy * n).abs().view({-1, columns}).sum(0);
    dbias_error = 0x1p-24 * (rows + 2) * dy.abs().view({-1, columns}).sum(0);
  }
  at::Tensor y, dx, dweight, dbias, y_error, dx_error, dweight_error, dbias_error;
};

class LayerNormTest : public testing::TestWithParam<StreamTypes> {};

TEST_P(LayerNormTest, MatchesDoubleAutogradForAwkwardShapesOverTwoMicroBatches) {
  const auto [type, stream] = GetParam();
  for (const int64_t columns : {1, 7, 16, 33, 64, 1023}) {
    for (const int64_t rows : {1, 5, 33, 130}) {
      TestParam weight(random({columns}, type, 1) + 1), bias(random({columns}, type, 2));
      tensor::GradQueue queue;
      at::Tensor dweight = at::zeros({columns}, at::kDouble), dbias = dweight.clone();
      at::Tensor dweight_error = at::full({columns}, 1e-7, at::kDouble), dbias_error = dweight_error.clone();
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        at::Tensor x = random({rows, 1, columns}, stream, 10 + micro_batch, 3).requires_grad_();
        const at::Tensor dy = random({rows, 1, columns}, type, 20 + micro_batch);
        const at::Tensor y = layer_norm(x, weight.param, bias.param, 1e-5, queue);
        y.backward(dy);
        const Oracle oracle(x, weight.param.value, bias.param.value, dy, 1e-5);
        expect_within(y, oracle.y, rounded(oracle.y, oracle.y_error, type), "y");
        expect_within(x.grad(), oracle.dx, rounded(oracle.dx, oracle.dx_error, stream), "dx");
        dweight += oracle.dweight, dbias += oracle.dbias;
        dweight_error += oracle.dweight_error + 0x1p-23 * dweight.abs();
        dbias_error += oracle.dbias_error + 0x1p-23 * dbias.abs();
      }
      expect_within(weight.added(), dweight, dweight_error, "dweight");
      expect_within(bias.added(), dbias, dbias_error, "dbias");
    }
  }
}

TEST_P(LayerNormTest, RowsOfOneValueGiveTheBiasAndAFiniteGradient) {
  const at::ScalarType type = GetParam().compute;
  TestParam weight(random({33}, type, 1)), bias(random({33}, type, 2));
  tensor::GradQueue queue;
  for (const double value : {0.0, 4.0, -512.0}) {
    at::Tensor x = at::full({3, 33}, value, type).requires_grad_();
    const at::Tensor dy = random({3, 33}, type, 4);
    const at::Tensor y = layer_norm(x, weight.param, bias.param, 1e-5, queue);
    EXPECT_TRUE(at::equal(y.detach(), bias.param.value.expand({3, 33}))) << value;
    y.backward(dy);
    const Oracle oracle(x, weight.param.value, bias.param.value, dy, 1e-5);
    expect_within(x.grad(), oracle.dx, rounded(oracle.dx, oracle.dx_error, type), "dx");
  }
}

TEST(LayerNorm, LargeMeanDoesNotSpoilTheVariance) {
  TestParam weight(at::ones({1024})), bias(at::zeros({1024}));
  tensor::GradQueue queue;
  // Deviations of 1 around 2^20: their squares around x^2 would need 40 bits.
  const at::Tensor x = (at::arange(1024) % 2 * 2 - 1).to(at::kFloat).view({1, 1024}) + 0x1p20;
  const at::Tensor y = layer_norm(x, weight.param, bias.param, 0.0, queue);
  EXPECT_TRUE(at::equal(y, (at::arange(1024) % 2 * 2 - 1).to(at::kFloat).view({1, 1024})));
}

TEST(LayerNorm, EpsilonIsAddedToTheVariance) {
  TestParam weight(at::ones({2})), bias(at::zeros({2}));
  tensor::GradQueue queue;
  const at::Tensor y = layer_norm(at::tensor({-1.0f, 1.0f}).view({1, 2}), weight.param, bias.param, 3.0, queue);
  EXPECT_EQ(y[0][1].item<float>(), 0.5f);  // 1 / sqrt(1 + 3)
}

TEST(LayerNorm, DeferredWorkGivesTheBitsOfImmediateWork) {
  at::Tensor grads[2][2];
  for (const bool deferred : {false, true}) {
    TestParam weight(random({33}, at::kBFloat16, 1)), bias(random({33}, at::kBFloat16, 2));
    tensor::GradQueue queue;
    if (deferred) queue.set_mode(tensor::GradQueue::Mode::kDeferred);
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      at::Tensor x = random({50, 33}, at::kBFloat16, 3 + micro_batch).requires_grad_();
      layer_norm(x, weight.param, bias.param, 1e-5, queue).backward(random({50, 33}, at::kBFloat16, 8));
    }
    EXPECT_EQ(queue.num_pending(), deferred ? 4u : 0u);
    queue.drain();
    grads[deferred][0] = weight.param.grad, grads[deferred][1] = bias.param.grad;
  }
  EXPECT_TRUE(at::equal(grads[0][0], grads[1][0]) && at::equal(grads[0][1], grads[1][1]));
}

TEST(LayerNorm, KeepsInputAndStatisticsOnlyWhenAGraphIsBuilt) {
  TestParam weight(at::ones({8})), bias(at::zeros({8}));
  tensor::GradQueue queue;
  std::string kept;
  const tensor::ObserveSaved observe([&](const char* op, const tensor::SavedTensor& saved) {
    kept += std::string(op) + "." + saved.name + ":" + std::to_string(saved.tensor.nbytes()) + " ";
  });
  at::Tensor x = at::ones({3, 8}, at::kFloat).requires_grad_();
  EXPECT_TRUE(layer_norm(x, weight.param, bias.param, 1e-5, queue).requires_grad());
  EXPECT_EQ(kept, "layer_norm.x:96 layer_norm.mean:12 layer_norm.rstd:12 ");
  kept.clear();
  EXPECT_FALSE(layer_norm(x.detach(), weight.param, bias.param, 1e-5, queue).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(layer_norm(x, weight.param, bias.param, 1e-5, queue).requires_grad());
  EXPECT_EQ(kept, "");
}

TEST(LayerNorm, ShapesAndTypesThatDoNotFitAreABug) {
  TestParam weight(at::ones({8})), bias(at::zeros({8}));
  tensor::GradQueue queue;
  EXPECT_THROW(layer_norm(at::ones({3, 7}), weight.param, bias.param, 1e-5, queue), InternalError);
  EXPECT_THROW(layer_norm(at::ones({8, 8}).t().narrow(0, 0, 3), weight.param, bias.param, 1e-5, queue), InternalError);
  EXPECT_THROW(layer_norm(at::ones({3, 8}, at::kHalf), weight.param, bias.param, 1e-5, queue), InternalError);
}

INSTANTIATE_TEST_SUITE_P(ComputeTypes, LayerNormTest, testing::ValuesIn(reference::kStreamTypes));

}  // namespace layer_norm_test
}  // namespace espalier::kernels
