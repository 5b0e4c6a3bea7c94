#include "kernels/activation.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/reference_test.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace activation_test {

using reference::expect_within;
using reference::random;
using reference::rounding;
using reference::TestParam;
using spec::Activation;

constexpr Activation kGelus[] = {Activation::kGeluTanh, Activation::kGeluErf};
constexpr Activation kSmooth[] = {Activation::kGeluTanh, Activation::kGeluErf, Activation::kSilu};
const char* name(Activation form) {
  return form == Activation::kGeluTanh ? "tanh" : form == Activation::kGeluErf ? "erf" : "silu";
}

// A smooth activation in double by libm, its derivative, and the size of the terms of the derivative.
struct Exact {
  double value, derivative, terms;
};
Exact exact(double x, Activation form) {
  double probability, slope;
  if (form == Activation::kGeluErf) {
    probability = 0.5 * std::erfc(-x / std::sqrt(2.0));
    slope = std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  } else if (form == Activation::kSilu) {
    probability = 1 / (1 + std::exp(-x));
    slope = probability / (1 + std::exp(x));
  } else {
    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    probability = 1 / (1 + std::exp(-2 * u));
    slope = probability / (1 + std::exp(2 * u)) * 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  }
  return {x * probability, probability + x * slope, probability + std::abs(x * slope)};
}

// Computing the exponent 2u of the tanh form rounds four times, 8 abs(u) units in all; the erf form puts its exponent's
// rounding back, and rounds t twice, which its power of up to 2.7 multiplies. That of SiLU is x itself.
double units(double x, Activation form) {
  if (form == Activation::kSilu) return 6;
  return form == Activation::kGeluErf ? 8 : 5 + 8 * std::sqrt(2 / M_PI) * std::abs(x + 0.044715 * x * x * x);
}

// Below 2^-126.5 exp is zero; the largest factor of it, x d(2u)/dx of the tanh form there, is under 300.
constexpr double kFlushed = 300 * 0x1p-126;

class ActivationTest : public testing::TestWithParam<at::ScalarType> {};

TEST(Activation, Fp32IsWithinAFewUnitsOfLibmOverTheWholeRange) {
  // Every exponent and sign with 100 mantissas, and a fine grid where the function bends.
  std::vector<float> points = {0.0f, -0.0f};
  for (int i = 0; i < 40000; ++i) points.push_back(static_cast<float>(i - 20000) * 7.3e-4f);
  for (int exponent = -120; exponent < 120; ++exponent) {
    for (int i = 0; i < 100; ++i) {
      points.push_back(std::ldexp(1 + static_cast<float>(i) / 100, exponent));
      points.push_back(-points.back());
    }
  }
  const int64_t count = static_cast<int64_t>(points.size());
  for (const Activation form : kSmooth) {
    TestParam bias(at::zeros({1}));
    tensor::GradQueue queue;
    at::Tensor x = at::tensor(points).view({count, 1}).requires_grad_();
    const at::Tensor y = bias_activation(x, &bias.param, form, queue);
    y.backward(at::ones_like(y));
    double worst_value = 0, worst_derivative = 0;
    for (int64_t i = 0; i < count; ++i) {
      const Exact want = exact(points[i], form);
      const double scale = units(points[i], form) * 0x1p-24;
      const double value_error = std::abs(y.const_data_ptr<float>()[i] - want.value);
      const double derivative_error = std::abs(x.grad().const_data_ptr<float>()[i] - want.derivative);
      ASSERT_LE(value_error, std::abs(want.value) * scale + kFlushed) << name(form) << " at " << points[i];
      ASSERT_LE(derivative_error, want.terms * scale + kFlushed) << name(form) << " at " << points[i];
      worst_value = std::max(worst_value, value_error / (std::abs(want.value) * scale + kFlushed));
      worst_derivative = std::max(worst_derivative, derivative_error / (want.terms * scale + kFlushed));
    }
    // The bound is not idle: a kernel at twice these errors fails.
    EXPECT_GT(worst_value, 0.2) << name(form);
    EXPECT_GT(worst_derivative, 0.2) << name(form);
  }
}

TEST_P(ActivationTest, GeluMatchesDoubleAutogradForAwkwardShapesOverTwoMicroBatches) {
  const at::ScalarType type = GetParam();
  const double smallest = reference::half_denormal(type);
  for (const Activation form : kGelus) {
    for (const int64_t columns : {1, 7, 33, 1023}) {
      for (const int64_t rows : {1, 33, 150}) {
        TestParam bias(random({columns}, type, 1));
        tensor::GradQueue queue;
        at::Tensor dbias = at::zeros({columns}, at::kDouble), dbias_error = at::full({columns}, 1e-7, at::kDouble);
        for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
          at::Tensor x = random({rows, columns}, type, 10 + micro_batch, 2).requires_grad_();
          const at::Tensor dy = random({rows, columns}, type, 20 + micro_batch);
          const at::Tensor y = bias_activation(x, &bias.param, form, queue);
          y.backward(dy);
          at::Tensor sum =
              (x.detach().to(at::kFloat) + bias.param.value.to(at::kFloat)).to(at::kDouble).requires_grad_();
          const at::Tensor expected = at::gelu(sum, form == Activation::kGeluTanh ? "tanh" : "none");
          expected.backward(dy.to(at::kDouble));
          // ATen's double GELU is 0.5 x (1 + erf): it cancels for negative x, to 2^-53 |x|.
          expect_within(y, expected,
                        expected.detach().abs() * (rounding(type) * 1.01 + 80 * 0x1p-24) + 1e-12 + smallest, "y");
          const at::Tensor dx_bound =
              sum.grad().abs() * rounding(type) * 1.01 + dy.to(at::kDouble).abs() * 100 * 0x1p-24;
          expect_within(x.grad(), sum.grad(), dx_bound + smallest, "dx");
          dbias += sum.grad().sum(0);
          dbias_error += dy.to(at::kDouble).abs().sum(0) * (100 + rows) * 0x1p-24;
        }
        expect_within(bias.added(), dbias, dbias_error, "dbias");
      }
    }
  }
}

// Every other kind as ATen composes it, x: [..., n or 2n] in double.
at::Tensor composed(const at::Tensor& x, Activation activation) {
  if (activation == Activation::kRelu) return at::relu(x);
  if (activation == Activation::kSquaredRelu) return at::relu(x).pow(2);
  if (activation == Activation::kSilu) return at::silu(x);
  const std::vector<at::Tensor> halves = at::chunk(x, 2, -1);
  if (activation == Activation::kSwiglu) return at::silu(halves[0]) * halves[1];
  if (activation == Activation::kGeglu) return at::gelu(halves[0], "none") * halves[1];
  if (activation == Activation::kGegluTanh) return at::gelu(halves[0], "tanh") * halves[1];
  if (activation == Activation::kReglu) return at::relu(halves[0]) * halves[1];
  return halves[0] * halves[1];
}

constexpr Activation kOthers[] = {Activation::kRelu,  Activation::kSquaredRelu, Activation::kSilu,  Activation::kSwiglu,
                                  Activation::kGeglu, Activation::kGegluTanh,   Activation::kReglu, Activation::kLiglu};

TEST_P(ActivationTest, EveryOtherKindMatchesDoubleAutogradWithAndWithoutBias) {
  const at::ScalarType type = GetParam();
  for (const Activation kind : kOthers) {
    for (const bool with_bias : {false, true}) {
      for (const int64_t result_columns : {1, 7, 33, 130}) {
        const int64_t columns = spec::is_gated(kind) ? 2 * result_columns : result_columns;
        for (const int64_t rows : {1, 33}) {
          TestParam bias(random({columns}, type, 1));
          tensor::GradQueue queue;
          at::Tensor x = random({rows, 1, columns}, type, 10, 2).requires_grad_();
          const at::Tensor dy = random({rows, 1, result_columns}, type, 20);
          const at::Tensor y = bias_activation(x, with_bias ? &bias.param : nullptr, kind, queue);
          y.backward(dy);
          at::Tensor sum = x.detach().to(at::kFloat);
          if (with_bias) sum = sum + bias.param.value.to(at::kFloat);
          sum = sum.to(at::kDouble).requires_grad_();
          const at::Tensor expected = composed(sum, kind);
          expected.backward(dy.to(at::kDouble));
          const std::string what = concat("kind ", static_cast<int>(kind), " ", c10::toString(type), " ", rows, " x ",
                                          result_columns, with_bias ? " with bias" : "");
          // The functions and their slopes are good to a few dozen units (tests above), relative to their terms, of
          // which none is larger than the largest input.
          const double largest = 1 + sum.abs().max().item<double>(), smallest = reference::half_denormal(type);
          expect_within(y, expected,
                        expected.detach().abs() * rounding(type) * 1.01 + smallest + largest * largest * 0x1p-20,
                        "y, " + what);
          const double dx_error = dy.abs().max().item<double>() * largest * largest * 0x1p-20;
          expect_within(x.grad(), sum.grad(), sum.grad().abs() * rounding(type) * 1.01 + smallest + dx_error,
                        "dx, " + what);
          if (with_bias) {
            expect_within(bias.added(), sum.grad().reshape({-1, columns}).sum(0),
                          at::full({columns}, rows * dx_error + 1e-6, at::kDouble), "dbias, " + what);
          }
        }
      }
    }
  }
}

TEST(Activation, TheFirstHalfIsTheActivatedOne) {
  tensor::GradQueue queue;
  const at::Tensor x = at::tensor({-3.0f, 2.0f, 5.0f, -7.0f}).view({1, 4});  // two gates, two values
  EXPECT_TRUE(
      at::equal(bias_activation(x, nullptr, Activation::kReglu, queue), at::tensor({-0.0f, -14.0f}).view({1, 2})));
  EXPECT_TRUE(
      at::equal(bias_activation(x, nullptr, Activation::kLiglu, queue), at::tensor({-15.0f, -14.0f}).view({1, 2})));
}

TEST(Activation, ReluKeepsNotANumber) {
  tensor::GradQueue queue;
  for (const Activation kind : {Activation::kRelu, Activation::kSquaredRelu}) {
    EXPECT_TRUE(at::isnan(bias_activation(at::full({1, 3}, NAN), nullptr, kind, queue)).all().item<bool>());
  }
}

TEST(Activation, EndsOfTheRangeAreFinite) {
  const float huge = std::numeric_limits<float>::max(), infinity = std::numeric_limits<float>::infinity();
  for (const Activation form : kSmooth) {
    TestParam bias(at::zeros({1}));
    tensor::GradQueue queue;
    at::Tensor x = at::tensor({-huge, -100.0f, 100.0f, huge, infinity}).view({5, 1}).requires_grad_();
    const at::Tensor y = bias_activation(x, &bias.param, form, queue);
    y.backward(at::ones_like(y));
    EXPECT_TRUE(at::equal(y.detach().view(-1), at::tensor({0.0f, 0.0f, 100.0f, huge, infinity}))) << y;
    EXPECT_TRUE(at::equal(x.grad().view(-1), at::tensor({0.0f, 0.0f, 1.0f, 1.0f, 1.0f}))) << x.grad();
    const at::Tensor nan = bias_activation(at::full({3, 1}, NAN), &bias.param, form, queue);
    EXPECT_TRUE(at::isnan(nan).all().item<bool>());
  }
}

TEST(Activation, KeepsOnlyItsInput) {
  TestParam bias(at::zeros({8}, at::kBFloat16));
  tensor::GradQueue queue;
  std::string kept;
  const tensor::ObserveSaved observe([&](const char* op, const tensor::SavedTensor& saved) {
    kept += std::string(op) + "." + saved.name + ":" + std::to_string(saved.tensor.nbytes()) + " ";
  });
  at::Tensor x = at::ones({3, 8}, at::kBFloat16).requires_grad_();
  bias_activation(x, &bias.param, Activation::kGeluTanh, queue);
  EXPECT_EQ(kept, "bias_activation.x:48 ");
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(bias_activation(x, &bias.param, Activation::kGeluTanh, queue).requires_grad());
  EXPECT_EQ(kept, "bias_activation.x:48 ");
}

TEST(Activation, ShapesAndTypesThatDoNotFitAreABug) {
  TestParam bias(at::zeros({8}));
  tensor::GradQueue queue;
  EXPECT_THROW(bias_activation(at::ones({3, 7}), &bias.param, Activation::kGeluErf, queue), InternalError);
  EXPECT_THROW(bias_activation(at::ones({3, 8}, at::kHalf), &bias.param, Activation::kGeluErf, queue), InternalError);
  EXPECT_THROW(bias_activation(at::ones({3, 7}), nullptr, Activation::kSwiglu, queue), InternalError);
  EXPECT_THROW(bias_activation(at::ones({3, 16}), &bias.param, Activation::kSwiglu, queue), InternalError);
  TestParam wide_bias(at::zeros({8}, at::kDouble));
  EXPECT_THROW(bias_activation(at::ones({3, 8}, at::kDouble), &wide_bias.param, Activation::kGeluErf, queue),
               InternalError);
}

INSTANTIATE_TEST_SUITE_P(ComputeTypes, ActivationTest, testing::Values(at::kFloat, at::kBFloat16, at::kHalf));

}  // namespace activation_test
}  // namespace espalier::kernels
