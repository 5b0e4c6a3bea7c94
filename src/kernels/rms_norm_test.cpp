#include "kernels/rms_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <string>

#include "base/error.h"
#include "kernels/reference_test.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace rms_norm_test {

using reference::expect_within;
using reference::random;
using reference::rounded;
using reference::StreamTypes;
using reference::TestParam;

at::Tensor wide(const at::Tensor& x) { return x.detach().to(at::kDouble); }

// The formula by ATen's autograd in double, and what rounding in fp32 may change. Sums run in 64 lanes.
struct Oracle {
  Oracle(const at::Tensor& x_in, const at::Tensor& weight_in, const at::Tensor& dy_in, double epsilon) {
    const int64_t columns = weight_in.size(0);
    at::Tensor x = wide(x_in).requires_grad_(), weight = wide(weight_in).requires_grad_();
    const at::Tensor dy = wide(dy_in);
    y = x / at::sqrt(x.pow(2).mean(-1, true) + epsilon) * weight;
    y.backward(dy);
    y = y.detach();
    dx = x.grad(), dweight = weight.grad();

    const at::NoGradGuard no_grad;
    const double unit = 0x1p-24 * (static_cast<double>(columns) / 64 + 10);
    const at::Tensor rstd = 1 / at::sqrt(x.pow(2).mean(-1, true) + epsilon);
    const at::Tensor n = x * rstd, g = dy * weight, n_error = 2 * unit * n.abs();
    y_error = n_error * weight.abs();
    const at::Tensor mean_absolute = (g * n).abs().mean(-1, true);
    dx_error = 4 * unit * rstd * (g.abs() + n.abs() * mean_absolute);
    const double rows = static_cast<double>(x.numel() / columns);
    dweight_error = (dy.abs() * n_error).view({-1, columns}).sum(0) +
                    0x1p-24 * (rows + 2) * (dy * n).abs().view({-1, columns}).sum(0);
  }
  at::Tensor y, dx, dweight, y_error, dx_error, dweight_error;
};

class RmsNormTest : public testing::TestWithParam<StreamTypes> {};

TEST_P(RmsNormTest, MatchesDoubleAutogradForAwkwardShapesOverTwoMicroBatches) {
  const auto [type, stream] = GetParam();
  for (const int64_t columns : {1, 7, 16, 33, 64, 1023}) {
    for (const int64_t rows : {1, 7, 33, 130}) {
      TestParam weight(random({columns}, type, 1) + 1);
      tensor::GradQueue queue;
      at::Tensor dweight = at::zeros({columns}, at::kDouble), dweight_error = at::full({columns}, 1e-7, at::kDouble);
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        at::Tensor x = random({rows, 1, columns}, stream, 10 + micro_batch, 3).requires_grad_();
        const at::Tensor dy = random({rows, 1, columns}, type, 20 + micro_batch);
        const at::Tensor y = rms_norm(x, weight.param, 1e-5, queue);
        y.backward(dy);
        const Oracle oracle(x, weight.param.value, dy, 1e-5);
        expect_within(y, oracle.y, rounded(oracle.y, oracle.y_error, type), "y");
        expect_within(x.grad(), oracle.dx, rounded(oracle.dx, oracle.dx_error, stream), "dx");
        dweight += oracle.dweight;
        dweight_error += oracle.dweight_error + 0x1p-23 * dweight.abs();
      }
      expect_within(weight.added(), dweight, dweight_error, "dweight");
    }
  }
}

TEST(RmsNorm, IsThePlainLoop) {
  constexpr int64_t kRows = 3, kColumns = 7;
  TestParam weight(random({kColumns}, at::kFloat, 1));
  tensor::GradQueue queue;
  const at::Tensor x = random({kRows, kColumns}, at::kFloat, 2);
  const at::Tensor y = rms_norm(x, weight.param, 0.5, queue);
  for (int64_t row = 0; row < kRows; ++row) {
    double squares = 0;
    for (int64_t column = 0; column < kColumns; ++column) squares += std::pow(x[row][column].item<double>(), 2);
    for (int64_t column = 0; column < kColumns; ++column) {
      const double wanted = x[row][column].item<double>() / std::sqrt(squares / kColumns + 0.5) *
                            weight.param.value[column].item<double>();
      EXPECT_NEAR(y[row][column].item<double>(), wanted, 1e-6 * std::abs(wanted)) << row << ", " << column;
    }
  }
}

TEST(RmsNorm, ARowOfZerosGivesZerosAndAFiniteGradient) {
  TestParam weight(at::ones({33}));
  tensor::GradQueue queue;
  at::Tensor x = at::zeros({2, 33}).requires_grad_();
  const at::Tensor y = rms_norm(x, weight.param, 1e-6, queue);
  EXPECT_TRUE(at::equal(y.detach(), at::zeros({2, 33})));
  y.backward(at::ones_like(y));
  // dy / sqrt(epsilon)
  EXPECT_LE((x.grad() - 1000).abs().max().item<double>(), 1e-3);
}

TEST(RmsNorm, KeepsInputAndStatisticsOnlyWhenAGraphIsBuilt) {
  TestParam weight(at::ones({8}));
  tensor::GradQueue queue;
  std::string kept;
  const tensor::ObserveSaved observe([&](const char* op, const tensor::SavedTensor& saved) {
    kept += std::string(op) + "." + saved.name + ":" + std::to_string(saved.tensor.nbytes()) + " ";
  });
  at::Tensor x = at::ones({3, 8}, at::kFloat).requires_grad_();
  EXPECT_TRUE(rms_norm(x, weight.param, 1e-5, queue).requires_grad());
  EXPECT_EQ(kept, "rms_norm.x:96 rms_norm.rstd:12 ");
  kept.clear();
  EXPECT_FALSE(rms_norm(x.detach(), weight.param, 1e-5, queue).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(rms_norm(x, weight.param, 1e-5, queue).requires_grad());
  EXPECT_EQ(kept, "");
}

TEST(RmsNorm, ShapesAndTypesThatDoNotFitAreABug) {
  TestParam weight(at::ones({8}));
  tensor::GradQueue queue;
  EXPECT_THROW(rms_norm(at::ones({3, 7}), weight.param, 1e-5, queue), InternalError);
  EXPECT_THROW(rms_norm(at::ones({8, 8}).t().narrow(0, 0, 3), weight.param, 1e-5, queue), InternalError);
  EXPECT_THROW(rms_norm(at::ones({3, 8}, at::kHalf), weight.param, 1e-5, queue), InternalError);
}

INSTANTIATE_TEST_SUITE_P(ComputeTypes, RmsNormTest, testing::ValuesIn(reference::kStreamTypes));

}  // namespace rms_norm_test
}  // namespace espalier::kernels
