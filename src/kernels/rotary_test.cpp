#include "kernels/rotary.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/reference_test.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace rotary_test {

using reference::expect_within;
using reference::random;
using reference::rounding;

constexpr int64_t kTablePositions = 50;

RotaryTable table_of(int64_t rotary_size) {
  const at::Tensor pair = at::arange(rotary_size / 2, at::kDouble);
  const at::Tensor frequency = at::pow(10000.0, -2 * pair / static_cast<double>(rotary_size));
  const at::Tensor angle = at::arange(kTablePositions, at::kDouble).view({-1, 1}) * frequency;
  return {at::cos(angle).to(at::kFloat), at::sin(angle).to(at::kFloat)};
}

// Different in every row, neither sorted nor from 0.
at::Tensor positions_of(int64_t samples, int64_t length) {
  return ((at::arange(samples * length) * 31 + 17) % kTablePositions).view({samples, length});
}

// The rotation in double, pair by pair, as functions that autograd can follow; and the sizes of its terms.
struct Rotated {
  at::Tensor result, terms;
};

Rotated rotate(const at::Tensor& qkv, const RotaryTable& table, const at::Tensor& positions, Heads heads,
               bool interleaved) {
  const at::Tensor parts = qkv.view({qkv.size(0), qkv.size(1), heads.groups, heads.parts_of_group(), -1});
  const int64_t rotary_size = 2 * table.cosine.size(1);
  std::vector<at::Tensor> columns(parts.size(4)), terms(parts.size(4));
  for (int64_t channel = 0; channel < parts.size(4); ++channel) {
    columns[channel] = parts.select(4, channel);
    terms[channel] = at::zeros_like(columns[channel]);
  }
  // Ones for queries and keys, zero for values: these are turned by nothing.
  at::Tensor turns = at::ones({heads.parts_of_group()}, at::kDouble);
  turns[-1] = 0;
  for (int64_t pair = 0; pair < rotary_size / 2; ++pair) {
    const int64_t first = interleaved ? 2 * pair : pair, second = interleaved ? first + 1 : pair + rotary_size / 2;
    const auto factor = [&](const at::Tensor& values) {  // [s, b, 1, 1]
      return values.to(at::kDouble).select(1, pair).index({positions}).t().unsqueeze(-1).unsqueeze(-1);
    };
    const at::Tensor c = factor(table.cosine) * turns + (1 - turns), s = factor(table.sine) * turns;
    const at::Tensor x0 = parts.select(4, first), x1 = parts.select(4, second);
    columns[first] = x0 * c - x1 * s;
    columns[second] = x0 * s + x1 * c;
    terms[first] = ((x0 * c).abs() + (x1 * s).abs()).detach() * turns;
    terms[second] = ((x0 * s).abs() + (x1 * c).abs()).detach() * turns;
  }
  return {at::stack(columns, 4).view(qkv.sizes()), at::stack(terms, 4).view(qkv.sizes())};
}

struct Case {
  Heads heads;
  int64_t head_size, rotary_size;
};

TEST(Rotary, MatchesTheFormulaAndItsAutogradInDouble) {
  const std::vector<Case> cases = {
      {{1, 1}, 8, 8}, {{4, 2}, 24, 10}, {{3, 3}, 80, 80}, {{6, 1}, 64, 32}, {{2, 2}, 128, 66}};
  int64_t turn = 0;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Case& c : cases) {
      const RotaryTable table = table_of(c.rotary_size);
      const int64_t length = std::vector<int64_t>{1, 7, 33}[turn++ % 3];
      for (const bool interleaved : {false, true}) {
        at::Tensor qkv = random({length, 3, c.heads.columns(c.head_size)}, type, 1).requires_grad_();
        const at::Tensor d_result = random(qkv.sizes(), type, 2), positions = positions_of(3, length);
        at::Tensor exact = qkv.detach().to(at::kDouble).requires_grad_();
        const Rotated wanted = rotate(exact, table, positions, c.heads, interleaved);
        wanted.result.backward(d_result.to(at::kDouble));
        const at::Tensor found = rotary(qkv, table, positions, c.heads, c.head_size, interleaved);
        found.backward(d_result);
        const auto bound = [&](const at::Tensor& value, const at::Tensor& terms) {
          return value.abs() * rounding(type) * 1.01 * (terms > 0) + terms * 3 * 0x1p-24 +
                 reference::half_denormal(type) * (terms > 0);
        };
        const std::string what = concat(c.heads.queries, "/", c.heads.groups, " heads of ", c.head_size, ", ",
                                        c.rotary_size, interleaved ? " interleaved " : " halves ", c10::toString(type));
        expect_within(found, wanted.result, bound(wanted.result.detach(), wanted.terms), what);
        // The terms of the gradient are those of the turn back, whose sines have the other sign.
        const at::Tensor d_terms =
            rotate(d_result.to(at::kDouble), {table.cosine, -table.sine}, positions, c.heads, interleaved).terms;
        expect_within(qkv.grad(), exact.grad(), bound(exact.grad(), d_terms), "gradient, " + what);
      }
    }
  }
}

TEST(Rotary, ScoresDependOnTheDistanceAlone) {
  const Heads heads{1, 1};
  const int64_t head_size = 16;
  const RotaryTable table = table_of(head_size);
  const at::Tensor token = random({1, 1, heads.columns(head_size)}, at::kFloat, 1);
  for (const bool interleaved : {false, true}) {
    const auto turned = [&](int64_t position, int64_t part) {  // 0: query, 1: key
      const at::Tensor at_position = at::full({1, 1}, position, at::kLong);
      return rotary(token, table, at_position, heads, head_size, interleaved)
          .view({3, head_size})[part]
          .to(at::kDouble);
    };
    const auto score = [&](int64_t query, int64_t key) { return turned(query, 0).dot(turned(key, 1)).item<double>(); };
    EXPECT_NEAR(score(40, 33), score(9, 2), 1e-5);
    EXPECT_GT(std::abs(score(40, 33) - score(40, 39)), 1e-2);
  }
}

TEST(Rotary, KeepsOnlyThePositions) {
  std::string kept;
  const tensor::ObserveSaved observe([&](const char* op, const tensor::SavedTensor& saved) {
    kept += std::string(op) + "." + saved.name + ":" + std::to_string(saved.tensor.nbytes()) + " ";
  });
  at::Tensor qkv = at::ones({2, 3, 24}).requires_grad_();
  EXPECT_TRUE(rotary(qkv, table_of(8), positions_of(3, 2), {1, 1}, 8, false).requires_grad());
  EXPECT_EQ(kept, "rotary.positions:48 ");
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(rotary(qkv, table_of(8), positions_of(3, 2), {1, 1}, 8, false).requires_grad());
  EXPECT_EQ(kept, "rotary.positions:48 ");
}

TEST(Rotary, ArgumentsThatDoNotFitAreABug) {
  const at::Tensor qkv = at::ones({2, 3, 24});
  const at::Tensor positions = positions_of(3, 2);
  EXPECT_NO_THROW(rotary(qkv, table_of(8), positions, {1, 1}, 8, false));
  EXPECT_THROW(rotary(qkv, table_of(10), positions, {1, 1}, 8, false), InternalError);
  EXPECT_THROW(rotary(qkv, table_of(8), positions, {2, 1}, 8, false), InternalError);
  EXPECT_THROW(rotary(qkv, table_of(8), positions, {3, 2}, 8, false), InternalError);
  EXPECT_THROW(rotary(qkv, table_of(8), positions.t(), {1, 1}, 8, false), InternalError);
  EXPECT_THROW(rotary(qkv, table_of(8), positions + kTablePositions, {1, 1}, 8, false), InternalError);
  EXPECT_THROW(rotary(qkv, table_of(8), positions.to(at::kInt), {1, 1}, 8, false), InternalError);
}

}  // namespace rotary_test
}  // namespace espalier::kernels
