#include "kernels/qk_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>

#include "base/error.h"
#include "kernels/reference_test.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace qk_norm_test {

using reference::expect_within;
using reference::random;
using reference::rounding;
using reference::TestParam;

struct Case {
  Heads heads;
  int64_t head_size, length;
};

// [s, b, columns] as [s, b, groups, parts of a group, head_size].
at::Tensor by_part(const at::Tensor& qkv, Heads heads) {
  return qkv.view({qkv.size(0), qkv.size(1), heads.groups, heads.parts_of_group(), -1});
}

TEST(QkNorm, MatchesDoubleAutogradOverTwoMicroBatches) {
  const Case cases[] = {{{1, 1}, 1, 7},   {{2, 2}, 7, 33},  {{6, 2}, 33, 7},
                        {{4, 1}, 64, 33}, {{6, 3}, 80, 33}, {{4, 4}, 128, 1}};
  constexpr double kEpsilon = 1e-6;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Case& c : cases) {
      const int64_t queries = c.heads.per_group();
      TestParam query_weight(random({c.head_size}, type, 1) + 1), key_weight(random({c.head_size}, type, 2) + 1);
      tensor::GradQueue queue;
      at::Tensor d_weights = at::zeros({2, c.head_size}, at::kDouble), d_weights_error = d_weights + 1e-7;
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        at::Tensor qkv = random({c.length, 3, c.heads.columns(c.head_size)}, type, 3 + micro_batch, 3).requires_grad_();
        const at::Tensor d_result = random(qkv.sizes(), type, 7 + micro_batch);

        at::Tensor exact = qkv.detach().to(at::kDouble).requires_grad_();
        at::Tensor weights =
            at::stack({query_weight.param.value, key_weight.param.value}).to(at::kDouble).requires_grad_();
        const at::Tensor parts = by_part(exact, c.heads), values = parts.narrow(3, queries + 1, 1);
        const at::Tensor heads = parts.narrow(3, 0, queries + 1);
        const at::Tensor weight_of_part =
            at::cat({weights.narrow(0, 0, 1).expand({queries, c.head_size}), weights.narrow(0, 1, 1)});
        const at::Tensor rstd = 1 / at::sqrt(heads.pow(2).mean(-1, true) + kEpsilon);
        const at::Tensor wanted = at::cat({heads * rstd * weight_of_part, values}, 3).view(qkv.sizes());
        wanted.backward(d_result.to(at::kDouble));

        const at::Tensor found = qk_norm(qkv, query_weight.param, key_weight.param, c.heads, kEpsilon, queue);
        found.backward(d_result);
        const std::string what = concat(c.heads.queries, "/", c.heads.groups, " heads of ", c.head_size, ", length ",
                                        c.length, " ", c10::toString(type));
        const double unit = 0x1p-24 * (static_cast<double>(c.head_size) / 64 + 10),
                     small = reference::half_denormal(type);
        expect_within(found, wanted, wanted.detach().abs() * (rounding(type) * 1.01 + 2 * unit) + small, what);
        const at::Tensor n = (heads * rstd).detach(), dy = by_part(d_result.to(at::kDouble), c.heads);
        const at::Tensor g = dy.narrow(3, 0, queries + 1) * weight_of_part.detach();
        const at::Tensor error = 4 * unit * rstd.detach() * (g.abs() + n.abs() * (g * n).abs().mean(-1, true));
        expect_within(qkv.grad(), exact.grad(),
                      exact.grad().abs() * rounding(type) * 1.01 + small +
                          at::cat({error, at::zeros_like(values)}, 3).view(qkv.sizes()),
                      "gradient, " + what);
        // Values and their gradients are copied.
        EXPECT_TRUE(at::equal(by_part(found.detach(), c.heads).select(3, queries + 1),
                              by_part(qkv.detach(), c.heads).select(3, queries + 1)))
            << what;
        d_weights += weights.grad();
        const at::Tensor terms = (dy.narrow(3, 0, queries + 1) * n).abs();
        const double rows = static_cast<double>(c.length * 3 * c.heads.queries);
        d_weights_error +=
            at::stack({terms.narrow(3, 0, queries).sum({0, 1, 2, 3}), terms.select(3, queries).sum({0, 1, 2})}) *
                (2 * unit + 0x1p-24 * (rows + 2)) +
            0x1p-23 * d_weights.abs();
      }
      expect_within(query_weight.added(), d_weights[0], d_weights_error[0], "gradient of the queries' weight");
      expect_within(key_weight.added(), d_weights[1], d_weights_error[1], "gradient of the keys' weight");
    }
  }
}

TEST(QkNorm, KeepsItsInputAndOneNumberPerHead) {
  TestParam query_weight(at::ones({8})), key_weight(at::ones({8}));
  tensor::GradQueue queue;
  std::string kept;
  const tensor::ObserveSaved observe([&](const char* op, const tensor::SavedTensor& saved) {
    kept += std::string(op) + "." + saved.name + ":" + std::to_string(saved.tensor.nbytes()) + " ";
  });
  at::Tensor qkv = at::ones({2, 3, 2 * 5 * 8}).requires_grad_();  // 2 groups of 3 query heads
  EXPECT_TRUE(qk_norm(qkv, query_weight.param, key_weight.param, {6, 2}, 1e-6, queue).requires_grad());
  EXPECT_EQ(kept, "qk_norm.qkv:1920 qk_norm.rstd:192 ");
  kept.clear();
  EXPECT_FALSE(qk_norm(qkv.detach(), query_weight.param, key_weight.param, {6, 2}, 1e-6, queue).requires_grad());
  EXPECT_EQ(kept, "");
}

TEST(QkNorm, ArgumentsThatDoNotFitAreABug) {
  TestParam weight(at::ones({8})), wide_weight(at::ones({16}));
  tensor::GradQueue queue;
  const at::Tensor qkv = at::ones({2, 3, 24});
  EXPECT_NO_THROW(qk_norm(qkv, weight.param, weight.param, {1, 1}, 1e-6, queue));
  EXPECT_THROW(qk_norm(qkv, weight.param, wide_weight.param, {1, 1}, 1e-6, queue), InternalError);
  EXPECT_THROW(qk_norm(qkv, wide_weight.param, wide_weight.param, {1, 1}, 1e-6, queue), InternalError);
  EXPECT_THROW(qk_norm(qkv, weight.param, weight.param, {2, 1}, 1e-6, queue), InternalError);
  EXPECT_THROW(qk_norm(qkv.to(at::kHalf), weight.param, weight.param, {1, 1}, 1e-6, queue), InternalError);
}

}  // namespace qk_norm_test
}  // namespace espalier::kernels
