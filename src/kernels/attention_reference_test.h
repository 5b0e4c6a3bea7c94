// Attention by its formula in double, for its tests: sizes, masks, the expected result and gradient, and the bound of
// the rounding errors of an implementation that sums in fp32.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/dispatch.h"
#include "kernels/reference_test.h"
#include "tensor/rng.h"

namespace espalier::kernels::attention_reference {

using tensor::AttentionContext;
using tensor::KeyValueCache;

constexpr int64_t kLayer = 3;

struct Sizes {
  int64_t s, b, heads, head_size;
  int64_t groups = 0;  // 0: a group for each head

  Heads of() const { return {heads, groups == 0 ? heads : groups}; }
  int64_t columns() const { return of().columns(head_size); }
};

struct Masks {
  bool documents = false, window = false, alibi = false, dropout = false;
};

inline std::string describe(const Sizes& sizes, const Masks& masks, at::ScalarType type) {
  return concat("s=", sizes.s, " b=", sizes.b, " heads=", sizes.heads, "/", sizes.of().groups,
                " head_size=", sizes.head_size, masks.documents ? " documents" : "", masks.window ? " window" : "",
                masks.alibi ? " alibi" : "", masks.dropout ? " dropout" : "", " ", c10::toString(type));
}

inline AttentionContext make_context(const Sizes& sizes, const Masks& masks) {
  AttentionContext context;
  if (masks.documents) {  // documents of 5, 16 and 23 tokens in turn, shifted from row to row
    context.first_key = at::empty({sizes.b, sizes.s}, at::kInt);
    auto first_key = context.first_key.accessor<int32_t, 2>();
    for (int64_t row = 0; row < sizes.b; ++row) {
      int64_t start = 0, length = 5 + row, kind = row;
      for (int64_t position = 0; position < sizes.s; ++position) {
        if (position == start + length) {
          start = position;
          length = std::vector<int64_t>{5, 16, 23}[++kind % 3];
        }
        first_key[row][position] = static_cast<int32_t>(start);
      }
    }
  }
  if (masks.window) context.window = 19;
  if (masks.alibi) context.alibi_slopes = alibi_slopes(sizes.heads);
  if (masks.dropout) {
    context.dropout = 0.3;
    context.seed = 1234;
    for (int64_t row = 0; row < sizes.b; ++row) context.sample_numbers.push_back((row << 33) + 77 * row + 5);
  }
  return context;
}

inline at::Tensor random_qkv(const Sizes& sizes, at::ScalarType type, double size = 1) {
  at::manual_seed(sizes.s * 1000 + sizes.head_size);
  return (at::randn({sizes.s, sizes.b, sizes.columns()}) * size).to(type);
}

// 1 where query may see key, [b, 1, s, s], by the definition.
inline at::Tensor visible(const Sizes& sizes, const AttentionContext& context) {
  at::Tensor mask = at::zeros({sizes.b, 1, sizes.s, sizes.s}, at::kDouble);
  auto cell = mask.accessor<double, 4>();
  for (int64_t row = 0; row < sizes.b; ++row) {
    for (int64_t query = 0; query < sizes.s; ++query) {
      const int64_t start = context.first_key.defined() ? context.first_key.accessor<int32_t, 2>()[row][query] : 0;
      for (int64_t key = 0; key <= query; ++key) {
        const bool same_document = key >= start;
        const bool near = context.window == 0 || query - key < context.window;
        cell[row][0][query][key] = same_document && near ? 1 : 0;
      }
    }
  }
  return mask;
}

// 0 where the probability is dropped, else 1 / (1 - p), [b, heads, s, s], by the scheme of kernels/dropout.h.
inline at::Tensor keep_factors(const Sizes& sizes, const AttentionContext& context) {
  at::Tensor factors = at::ones({sizes.b, sizes.heads, sizes.s, sizes.s}, at::kDouble);
  if (context.dropout == 0) return factors;
  const tensor::PhiloxKey key_of_site = tensor::philox_key(context.seed, "dropout/layers.3.attention");
  auto cell = factors.accessor<double, 4>();
  for (int64_t row = 0; row < sizes.b; ++row) {
    const uint64_t sample = context.sample_numbers[row];
    for (int64_t head = 0; head < sizes.heads; ++head) {
      for (int64_t query = 0; query < sizes.s; ++query) {
        for (int64_t key = 0; key <= query; ++key) {
          const tensor::PhiloxBlock block = tensor::philox4x32(
              key_of_site,
              {{uint32_t(key / 4), uint32_t(query), uint32_t(head + 65536 * (sample >> 32)), uint32_t(sample)}});
          cell[row][head][query][key] = block.word[key % 4] < context.dropout * 0x1p32 ? 0 : 1 / (1 - context.dropout);
        }
      }
    }
  }
  return factors;
}

// Error of rounding to a type: relative, and absolute below its smallest normal number.
struct Rounding {
  double relative, absolute;
};

inline Rounding rounding_of(at::ScalarType type) {
  if (type == at::kHalf) return {0x1p-11, 0x1p-25};
  return {type == at::kFloat ? 0x1p-24 : 0x1p-8, 1e-30};
}

// The formula with s x s tensors in double, its gradient by ATen's autograd, and for both a bound of the rounding
// errors of an implementation that sums in fp32 and rounds probabilities, their gradients, and results to the type.
struct Expected {
  at::Tensor result, d_qkv;              // [s, b, heads * head_size], [s, b, columns]
  at::Tensor result_bound, d_qkv_bound;  // the same shapes
};

inline at::Tensor heads_last(const at::Tensor& x) {  // [b, heads, s, d] -> [s, b, heads * d]
  return x.permute({2, 0, 1, 3}).reshape({x.size(2), x.size(0), x.size(1) * x.size(3)});
}

inline Expected expected(const at::Tensor& qkv_of_type, const at::Tensor& d_result_of_type, const Sizes& sizes,
                         const AttentionContext& context, const Rounding& rounding) {
  const at::Tensor qkv = qkv_of_type.detach().to(at::kDouble).requires_grad_(true);
  const Heads heads = sizes.of();
  const at::Tensor parts = qkv.view({sizes.s, sizes.b, heads.groups, heads.parts_of_group(), sizes.head_size});
  // [b, heads, s, d]; keys and values once for each query head of their group
  const auto of_heads = [&](const at::Tensor& x) {
    return x.expand({sizes.s, sizes.b, heads.groups, heads.per_group(), sizes.head_size})
        .reshape({sizes.s, sizes.b, sizes.heads, sizes.head_size})
        .permute({1, 2, 0, 3});
  };
  const at::Tensor q = of_heads(parts.narrow(3, 0, heads.per_group()));
  const at::Tensor k = of_heads(parts.narrow(3, heads.per_group(), 1));
  const at::Tensor v = of_heads(parts.narrow(3, heads.per_group() + 1, 1));
  const double scale = 1 / std::sqrt(double(sizes.head_size));
  at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * scale;
  if (context.alibi_slopes.defined()) {
    const at::Tensor position = at::arange(sizes.s, at::kDouble);
    scores = scores +
             context.alibi_slopes.to(at::kDouble).view({-1, 1, 1}) * (position.view({1, -1}) - position.view({-1, 1}));
  }
  const at::Tensor seen = visible(sizes, context), keep = keep_factors(sizes, context);
  const at::Tensor p = at::softmax(scores.masked_fill(seen == 0, -std::numeric_limits<double>::infinity()), -1);
  const at::Tensor result = at::matmul(p * keep, v);
  const at::Tensor d_result =
      d_result_of_type.to(at::kDouble).view({sizes.s, sizes.b, sizes.heads, sizes.head_size}).permute({1, 2, 0, 3});
  Expected out;
  out.d_qkv = torch::autograd::grad({result}, {qkv}, {d_result})[0];
  out.result = heads_last(result.detach());

  // Bounds (Higham, gamma_n = n u): a score is wrong by at most gamma |q| |k|, a probability relatively by twice the
  // row's largest such error; the rest follows the formulas of the backward pass.
  const at::NoGradGuard no_grad;
  const double u = 0x1p-24, t = rounding.relative, sums = (sizes.s * heads.per_group() + sizes.head_size + 16) * u;
  const at::Tensor score_error = (at::matmul(q.abs(), k.abs().transpose(2, 3)) * scale + scores.abs()) * sums * seen;
  const at::Tensor e = 2 * score_error.amax({-1}, true) + sums;  // [b, heads, s, 1]
  const at::Tensor pm = p * keep;
  const at::Tensor result_bound = (at::matmul((e + t) * pm, v.abs()) + t * result.abs());
  const at::Tensor dp = at::matmul(d_result, v.transpose(2, 3)) * keep, d = (d_result * result).sum(-1, true);
  const at::Tensor dp_error = at::matmul(d_result.abs(), v.abs().transpose(2, 3)) * keep * sums;
  const at::Tensor d_error =
      (d_result * result).abs().sum(-1, true) * sums + (d_result.abs() * result_bound).sum(-1, true);
  const at::Tensor ds = p * (dp - d);
  const at::Tensor ds_error = p * (dp_error + d_error) + e * p * (dp.abs() + d.abs()) + (t + sums) * ds.abs();
  const at::Tensor dq_bound = at::matmul(ds_error, k.abs()) * scale;
  const at::Tensor dk_bound = at::matmul(ds_error.transpose(2, 3), q.abs()) * scale;
  const at::Tensor dv_bound = at::matmul(((e + t + sums) * pm).transpose(2, 3), d_result.abs());
  out.result_bound = heads_last(result_bound) + rounding.absolute;
  const auto by_group = [&](const at::Tensor& x) {  // [s, b, groups, query heads of a group, d]
    return x.permute({2, 0, 1, 3}).reshape({sizes.s, sizes.b, heads.groups, heads.per_group(), sizes.head_size});
  };
  const at::Tensor part_bounds =
      at::cat({by_group(dq_bound), by_group(dk_bound).sum(3, true), by_group(dv_bound).sum(3, true)}, 3);
  out.d_qkv_bound = part_bounds.reshape(out.d_qkv.sizes()) + t * out.d_qkv.abs() + rounding.absolute;
  return out;
}

inline void expect_within(const at::Tensor& found, const at::Tensor& wanted, const at::Tensor& bound,
                          const std::string& what) {
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  const at::Tensor excess = (found.to(at::kDouble) - wanted).abs() - bound;
  ASSERT_FALSE(at::isnan(excess).any().item<bool>()) << what << ": NaN";
  const int64_t worst = excess.argmax().item<int64_t>();
  EXPECT_LE(excess.max().item<double>(), 0)
      << what << ": at " << worst << " found " << found.reshape(-1)[worst].item<double>() << ", wanted "
      << wanted.reshape(-1)[worst].item<double>() << ", allowed error " << bound.reshape(-1)[worst].item<double>();
}

// Result and gradient on every instruction set.
inline void compare_with_formula(const Sizes& sizes, const Masks& masks, at::ScalarType type, double size = 1) {
  const AttentionContext context = make_context(sizes, masks);
  const at::Tensor qkv = random_qkv(sizes, type, size).requires_grad_(true);
  const at::Tensor d_result = at::randn({sizes.s, sizes.b, sizes.heads * sizes.head_size}).to(type);
  const Expected wanted = expected(qkv, d_result, sizes, context, rounding_of(type));
  for (const CpuIsa isa : reference::instruction_sets()) {
    const ForceCpuIsa force(isa);
    const std::string what = describe(sizes, masks, type) + " on " + cpu_isa_name(isa);
    const at::Tensor result = attention(qkv, context, sizes.of(), kLayer);
    ASSERT_EQ(result.scalar_type(), type) << what;
    const at::Tensor d_qkv = torch::autograd::grad({result}, {qkv}, {d_result})[0];
    expect_within(result.detach(), wanted.result, wanted.result_bound, "result, " + what);
    expect_within(d_qkv, wanted.d_qkv, wanted.d_qkv_bound, "gradient, " + what);
  }
}

// Feeds the positions in pieces through a cache; the context's first_key is cut to the piece.
inline at::Tensor through_cache(const at::Tensor& qkv, AttentionContext context, const Sizes& sizes,
                                const std::vector<int64_t>& pieces) {
  KeyValueCache cache;
  cache.capacity = sizes.s + 5;
  cache.layers.resize(kLayer + 1);
  const auto empty = [&] {  // NaN where nothing was written: an unwritten position must not be read
    return at::full({sizes.b, sizes.of().groups, cache.capacity, sizes.head_size},
                    std::numeric_limits<float>::quiet_NaN(), qkv.options());
  };
  for (KeyValueCache::Layer& layer : cache.layers) layer = {empty(), empty()};
  const at::Tensor first_key = context.first_key;
  context.cache = &cache;
  std::vector<at::Tensor> results;
  for (const int64_t piece : pieces) {
    if (first_key.defined()) context.first_key = first_key.narrow(1, cache.length, piece).contiguous();
    results.push_back(attention(qkv.narrow(0, cache.length, piece).contiguous(), context, sizes.of(), kLayer));
    cache.length += piece;
  }
  EXPECT_EQ(cache.length, sizes.s);
  return at::cat(results);
}

}  // namespace espalier::kernels::attention_reference
