#include "kernels/optimizer_update.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace optimizer_update_test {

using reference::expect_within;
using reference::random;

struct AdamStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  int64_t step = 1;
  double grad_scale = 1;
};

struct State {
  State(int64_t count, at::ScalarType type)
      : master(random({count}, at::kFloat, 1)),
        exp_avg(random({count}, at::kFloat, 2, 0.1)),
        exp_avg_sq(random({count}, at::kFloat, 3, 0.1).pow(2)),
        grad(random({count}, at::kFloat, 4)),
        value(type == at::kFloat ? master : at::zeros({count}, type)) {}
  void step(const AdamStep& step) {
    const spec::OptimizerKind& adam = spec::optimizer_kind(spec::OptimizerType::kAdam);
    const spec::OptimizerSettings settings{
        .adam_beta1 = step.beta1, .adam_beta2 = step.beta2, .adam_eps = step.epsilon};
    const spec::OptimizerStep numbers{
        .lr = step.lr, .weight_decay = step.weight_decay, .number = step.step, .grad_scale = step.grad_scale};
    optimizer_update(adam, {{{master, {exp_avg, exp_avg_sq}, grad, value}, adam.constants(settings, numbers)}});
  }
  at::Tensor master, exp_avg, exp_avg_sq, grad, value;
};

Measured measured(const at::Tensor& values) {
  return measure({{.values = values, .squares = true, .zeros = true, .not_finite = true}})[0];
}

class AdamTest : public testing::TestWithParam<at::ScalarType> {};
class AdamRoundingTest : public testing::TestWithParam<at::ScalarType> {};

TEST_P(AdamTest, MatchesAPlainLoopInDouble) {
  const AdamStep step{
      .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .step = 7, .grad_scale = 0.37};
  for (const int64_t count : {1, 7, 33, 1023, 70001}) {
    State state(count, GetParam());
    const at::Tensor p = state.master.to(at::kDouble), m = state.exp_avg.to(at::kDouble),
                     v = state.exp_avg_sq.to(at::kDouble);
    const at::Tensor g = state.grad.to(at::kDouble);
    const at::Tensor untouched = state.grad.clone();
    state.step(step);
    at::Tensor want_p = at::empty({count}, at::kDouble), want_m = want_p.clone(), want_v = want_p.clone();
    at::Tensor bound = want_p.clone(), bound_m = want_p.clone();
    for (int64_t i = 0; i < count; ++i) {
      const double gi = g.const_data_ptr<double>()[i] * step.grad_scale, pi = p.const_data_ptr<double>()[i];
      const double mi = 0.9 * m.const_data_ptr<double>()[i] + 0.1 * gi;
      const double vi = 0.95 * v.const_data_ptr<double>()[i] + 0.05 * gi * gi;
      const double update = mi / (1 - std::pow(0.9, 7)) / (std::sqrt(vi / (1 - std::pow(0.95, 7))) + 1e-8);
      want_m.data_ptr<double>()[i] = mi, want_v.data_ptr<double>()[i] = vi;
      want_p.data_ptr<double>()[i] = pi - 1e-2 * (update + 0.1 * pi);
      const double m_terms = std::abs(0.9 * m.const_data_ptr<double>()[i]) + std::abs(0.1 * gi);
      bound_m.data_ptr<double>()[i] = 4 * 0x1p-24 * m_terms;
      const double update_terms = m_terms / std::max(1e-300, std::abs(mi)) * std::abs(update);
      bound.data_ptr<double>()[i] = 0x1p-24 * (std::abs(pi) + 1e-2 * (10 * update_terms + std::abs(pi)));
    }
    expect_within(state.exp_avg, want_m, bound_m, "exp_avg");
    expect_within(state.exp_avg_sq, want_v, want_v * 6 * 0x1p-24, "exp_avg_sq");
    expect_within(state.master, want_p, bound, "master");
    EXPECT_TRUE(at::equal(state.value, state.master.to(GetParam())));  // ATen's conversion: to nearest even
    EXPECT_TRUE(at::equal(state.grad, untouched));
  }
}

TEST_P(AdamTest, ConstantGradientFollowsTheClosedRecurrenceForTwentySteps) {
  // With a constant gradient both corrected moments are g and g^2 at every step.
  State state(33, GetParam());
  state.exp_avg.zero_(), state.exp_avg_sq.zero_();
  std::vector<double> p(33);
  for (int i = 0; i < 33; ++i) p[i] = state.master[i].item<double>();
  for (int64_t t = 1; t <= 20; ++t) {
    state.step(
        {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-6, .weight_decay = 0.1, .step = t, .grad_scale = 2});
    for (int i = 0; i < 33; ++i) {
      const double g = 2 * state.grad[i].item<double>();
      p[i] -= 1e-3 * (g / (std::abs(g) + 1e-6) + 0.1 * p[i]);
    }
  }
  for (int i = 0; i < 33; ++i) {
    // Each step rounds once at the size of p; the moments' relative error of a few units moves 1e-3 per step.
    EXPECT_NEAR(state.master[i].item<double>(), p[i], 20 * (0x1p-24 * std::abs(p[i]) + 1e-3 * 20 * 0x1p-24)) << i;
  }
}

TEST_P(AdamRoundingTest, MastersBetweenTwoValuesRoundToEven) {
  const at::ScalarType type = GetParam();
  const double half = type == at::kBFloat16 ? 0x1p-8 : 0x1p-11;  // half a unit at 1
  State state(4, type);
  state.master.copy_(at::tensor({1 + half, 1 + 3 * half, -1 - half, 1 + half * 1.001}));
  state.exp_avg.zero_(), state.exp_avg_sq.zero_(), state.grad.zero_();
  state.step({.lr = 0.1, .step = 1});
  EXPECT_TRUE(at::equal(state.value.to(at::kDouble), at::tensor({1.0, 1 + 4 * half, -1.0, 1 + 2 * half}, at::kDouble)));
}

TEST(Adam, Fp32ValueApartFromTheMasterIsACopy) {
  State state(33, at::kFloat);
  state.value = at::zeros({33});
  state.step({.lr = 0.1, .step = 1});
  EXPECT_TRUE(at::equal(state.value, state.master));
}

TEST(Adam, NumberOfThreadsChangesNoBit) {
  const int threads_before = at::get_num_threads();
  std::vector<State> states;
  std::vector<double> norms;
  for (int threads = 1; threads <= 3; ++threads) {
    at::set_num_threads(threads);
    states.emplace_back(100003, at::kBFloat16);
    states.back().step({.lr = 0.1, .weight_decay = 0.01, .step = 3});
    norms.push_back(measured(states.back().master).sum_of_squares);
  }
  at::set_num_threads(threads_before);
  for (const State& state : states)
    EXPECT_TRUE(at::equal(state.value, states[0].value) && at::equal(state.master, states[0].master));
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_EQ(norms[0], norms[2]);
}

TEST(Adam, SizesThatDifferAreABug) {
  State state(8, at::kBFloat16);
  state.grad = at::zeros({7});
  EXPECT_THROW(state.step({.lr = 0.1}), InternalError);
}

TEST(GradientMeasures, SumOfSquaresIsThatOfDouble) {
  for (const int64_t count : {0, 1, 7, 33, 1023, 100003}) {
    const at::Tensor values = random({count}, at::kFloat, 1, 1e20);  // squares overflow fp32
    double want = 0;
    for (int64_t i = 0; i < count; ++i) want += std::pow(values.const_data_ptr<float>()[i], 2.0);
    EXPECT_NEAR(measured(values).sum_of_squares, want, want * static_cast<double>(count) * 0x1p-53) << count;
  }
}

TEST(GradientMeasures, ZerosOfBothSignsAreCountedAndDenormalsAreNot) {
  at::Tensor values = random({1023}, at::kFloat, 1);
  EXPECT_EQ(measured(values).num_zeros, 0);
  values[0] = 0.0f, values[17] = -0.0f, values[1022] = 0.0f;
  values[5] = std::numeric_limits<float>::denorm_min(), values[6] = NAN;
  EXPECT_EQ(measured(values).num_zeros, 3);
  EXPECT_EQ(measured(at::zeros({70001})).num_zeros, 70001);
}

TEST(GradientMeasures, OfAListHaveWhatIsWantedOfEachTensor) {
  const at::Tensor a = at::tensor({0.0f, 3.0f, -4.0f}), b = at::tensor({0.0f, INFINITY});
  const std::vector<Measured> of = measure({{.values = a, .squares = true},
                                            {.values = b, .zeros = true, .not_finite = true},
                                            {.values = at::empty({0}), .squares = true, .zeros = true},
                                            {.values = a}});
  ASSERT_EQ(of.size(), 4u);
  EXPECT_EQ(of[0].sum_of_squares, 25);
  EXPECT_EQ(of[0].num_zeros, 0) << "not asked for";
  EXPECT_EQ(of[1].sum_of_squares, 0) << "not asked for";
  EXPECT_EQ(of[1].num_zeros, 1);
  EXPECT_EQ(of[1].num_not_finite, 1);
  for (const size_t nothing : {2, 3}) {
    EXPECT_EQ(of[nothing].sum_of_squares, 0);
    EXPECT_EQ(of[nothing].num_zeros, 0);
  }
}

TEST(GradientMeasures, OneBadElementAnywhereIsFound) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const int64_t place : {0, 15, 16, 70000}) {
      at::Tensor values = random({70001}, at::kFloat, 1);
      values[3] = std::numeric_limits<float>::max();
      EXPECT_EQ(measured(values).num_not_finite, 0);
      values[place] = bad;
      EXPECT_EQ(measured(values).num_not_finite, 1) << bad << " at " << place;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ShortTypes, AdamRoundingTest, testing::Values(at::kBFloat16, at::kHalf));
INSTANTIATE_TEST_SUITE_P(ComputeTypes, AdamTest, testing::Values(at::kFloat, at::kBFloat16, at::kHalf));

}  // namespace optimizer_update_test
}  // namespace espalier::kernels
