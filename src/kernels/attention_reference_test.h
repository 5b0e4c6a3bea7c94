// Attention by its formula in double, for its tests: sizes, masks, the expected result and gradient, and the bound of
// the rounding errors of an implementation that sums in fp32.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/attention.h"
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

// Which keys a query sees, apart from documents and window: those up to its own position; all (of its document); those
// of a prefix as well; all but padding, which sees nothing itself.
enum class Range { kCausal, kFull, kPrefix, kPadding };

struct Masks {
  bool documents = false, window = false, alibi = false, dropout = false;
  Range range = Range::kCausal;
  bool relative = false, scaled = false;  // a bias by distance, a scale of the caller's
  bool capped = false;
};

inline std::string describe(const Sizes& sizes, const Masks& masks, at::ScalarType type) {
  return concat("s=", sizes.s, " b=", sizes.b, " heads=", sizes.heads, "/", sizes.of().groups,
                " head_size=", sizes.head_size, masks.documents ? " documents" : "", masks.window ? " window" : "",
                masks.alibi ? " alibi" : "", masks.dropout ? " dropout" : "", masks.relative ? " relative" : "",
                masks.scaled ? " scaled" : "", masks.capped ? " capped" : "",
                std::vector<const char*>{"", " full", " prefix", " padding"}[static_cast<size_t>(masks.range)], " ",
                c10::toString(type));
}

// [b, s] int32 of f(row, position).
template <class Function>
at::Tensor keys_by(int64_t b, int64_t s, const Function& f) {
  at::Tensor keys = at::empty({b, s}, at::kInt);
  auto key = keys.accessor<int32_t, 2>();
  for (int64_t row = 0; row < b; ++row)
    for (int64_t position = 0; position < s; ++position) key[row][position] = static_cast<int32_t>(f(row, position));
  return keys;
}

// Sets the ranges of rows of s queries that see some of sk keys: `range`, documents left out.
inline void set_range(AttentionContext& context, Range range, int64_t b, int64_t s, int64_t sk) {
  if (range == Range::kFull) context.mask = AttentionContext::Mask::kFull;
  if (range == Range::kPrefix)
    context.last_key =
        keys_by(b, s, [&](int64_t row, int64_t query) { return std::max(query, (11 + 63 * row) % (sk + 1) - 1); });
  if (range != Range::kPadding) return;
  // Row 0 is padded at its end, row 1 at both, row 2 is nothing but padding. Queries that are in the padding see
  // nothing.
  const auto begin = [](int64_t row) { return row % 3 == 1 ? int64_t{2} : int64_t{0}; };
  const auto end = [](int64_t row, int64_t length) { return row % 3 == 2 ? int64_t{0} : length - length / 3 - row; };
  const auto pads = [&](int64_t row, int64_t query) { return query < begin(row) || query >= end(row, s); };
  context.first_key = keys_by(b, s, [&](int64_t row, int64_t query) { return pads(row, query) ? 0 : begin(row); });
  context.last_key =
      keys_by(b, s, [&](int64_t row, int64_t query) { return pads(row, query) ? -1 : end(row, sk) - 1; });
}

// For rows of up to `length` keys.
inline at::Tensor random_relative_bias(int64_t heads, int64_t length) {
  return at::randn({heads, 2 * length - 1}, at::detail::createCPUGenerator(heads * 1000 + length), at::kFloat);
}

inline AttentionContext make_context(const Sizes& sizes, const Masks& masks) {
  AttentionContext context;
  if (masks.relative) context.relative_bias = random_relative_bias(sizes.heads, sizes.s + 80);
  if (masks.scaled) context.scale = 0.4;
  if (masks.capped) context.soft_cap = 0.9;
  set_range(context, masks.range, sizes.b, sizes.s, sizes.s);
  if (masks.documents) {  // documents of 5, 16 and 23 tokens in turn, shifted from row to row
    context.first_key = at::empty({sizes.b, sizes.s}, at::kInt);
    if (masks.range == Range::kFull) context.last_key = at::empty({sizes.b, sizes.s}, at::kInt);
    for (int64_t row = 0; row < sizes.b; ++row) {
      for (int64_t start = 0, length = 5 + row, kind = row; start < sizes.s; start += length) {
        if (start > 0) length = std::vector<int64_t>{5, 16, 23}[++kind % 3];
        const int64_t end = std::min(start + length, sizes.s);
        context.first_key[row].slice(0, start, end).fill_(start);
        if (masks.range == Range::kFull) context.last_key[row].slice(0, start, end).fill_(end - 1);
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

// 1 where query may see key, [b, 1, s, sk], by the definition.
inline at::Tensor visible(int64_t b, int64_t s, int64_t sk, const AttentionContext& context) {
  at::Tensor mask = at::zeros({b, 1, s, sk}, at::kDouble);
  auto cell = mask.accessor<double, 4>();
  const auto entry = [](const at::Tensor& keys, int64_t row, int64_t query) {
    return static_cast<int64_t>(keys.accessor<int32_t, 2>()[row][query]);
  };
  for (int64_t row = 0; row < b; ++row) {
    for (int64_t query = 0; query < s; ++query) {
      const int64_t first = context.first_key.defined() ? entry(context.first_key, row, query) : 0;
      int64_t last = context.mask == AttentionContext::Mask::kCausal ? query : sk - 1;
      if (context.last_key.defined()) last = entry(context.last_key, row, query);
      for (int64_t key = 0; key < sk; ++key) {
        const bool near = context.window == 0 || query - key < context.window;
        cell[row][0][query][key] = first <= key && key <= last && near ? 1 : 0;
      }
    }
  }
  return mask;
}

// 0 where the probability is dropped, else 1 / (1 - p), [b, heads, s, sk], by the scheme of kernels/dropout.h.
inline at::Tensor keep_factors(at::IntArrayRef shape, const AttentionContext& context, const std::string& site) {
  at::Tensor factors = at::ones(shape, at::kDouble);
  if (context.dropout == 0) return factors;
  const tensor::PhiloxKey key_of_site = tensor::philox_key(context.seed, site.c_str());
  auto cell = factors.accessor<double, 4>();
  for (int64_t row = 0; row < shape[0]; ++row) {
    const uint64_t sample = context.sample_numbers[row];
    for (int64_t head = 0; head < shape[1]; ++head) {
      for (int64_t query = 0; query < shape[2]; ++query) {
        for (int64_t key = 0; key < shape[3]; ++key) {
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

// The formula with s x sk tensors in double, to be differentiated by ATen's autograd, and for result and gradients a
// bound of the rounding errors of an implementation that sums in fp32 and rounds probabilities, their gradients, and
// results to the type. All [b, query heads, s or sk, d], keys and values once for each query head of their group.
struct Formula {
  at::Tensor result;
  at::Tensor result_bound, dq_bound, dk_bound, dv_bound;
  at::Tensor d_scores, d_scores_bound;  // [b, query heads, s, sk], neither rounded to the type
};

struct FormulaMask {
  at::Tensor seen, keep, bias;  // broadcast to [b, query heads, s, sk]; bias may be undefined
  std::optional<double> scale;
  double soft_cap = 0;
};

inline Formula formula(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& d_result,
                       const FormulaMask& mask, const Rounding& rounding, int64_t heads_per_group) {
  const double scale = mask.scale.value_or(1 / std::sqrt(double(q.size(3))));
  const at::Tensor products = at::matmul(q, k.transpose(2, 3)) * scale;
  const double cap = mask.soft_cap;
  at::Tensor scores = cap == 0 ? products : cap * (products / cap).tanh();
  if (mask.bias.defined()) scores = scores + mask.bias;
  const at::Tensor& seen = mask.seen;
  const at::Tensor& keep = mask.keep;
  // Where a query sees no key the softmax is uniform, and then nothing of it is left.
  const at::Tensor p = at::softmax(scores.masked_fill(seen == 0, -1e30), -1) * seen;
  Formula out;
  out.result = at::matmul(p * keep, v);

  // Bounds (Higham, gamma_n = n u): a score is wrong by at most gamma |q| |k|, a probability relatively by twice the
  // row's largest such error; the rest follows the formulas of the backward pass.
  const at::NoGradGuard no_grad;
  const double u = 0x1p-24, t = rounding.relative;
  const double sums = (std::max(q.size(2), k.size(2)) * heads_per_group + q.size(3) + 16) * u;
  const at::Tensor score_error = (at::matmul(q.abs(), k.abs().transpose(2, 3)) * scale + scores.abs()) * sums * seen;
  const at::Tensor tanh = (cap == 0 ? 0 * products : (products / cap).tanh()), slope = 1 - tanh.square();
  const at::Tensor e = 2 * score_error.amax({-1}, true) + sums;  // [b, heads, s, 1]
  const at::Tensor pm = p * keep, result = out.result;
  const at::Tensor result_bound = at::matmul((e + t) * pm, v.abs()) + t * result.abs();
  const at::Tensor dp = at::matmul(d_result, v.transpose(2, 3)) * keep, d = (d_result * result).sum(-1, true);
  const at::Tensor dp_error = at::matmul(d_result.abs(), v.abs().transpose(2, 3)) * keep * sums;
  const at::Tensor d_error =
      (d_result * result).abs().sum(-1, true) * sums + (d_result.abs() * result_bound).sum(-1, true);
  const at::Tensor ds = p * (dp - d);
  const at::Tensor exact_ds_error = p * (dp_error + d_error) + e * p * (dp.abs() + d.abs()) + sums * ds.abs();
  // A soft cap moves scores by no more than products were moved; of its slope see the derivative of tanh^2.
  const at::Tensor slope_error = cap == 0 ? 0 * slope : 2 * tanh.abs() * score_error / cap + 16 * u;
  const at::Tensor ds_error = (exact_ds_error + t * ds.abs()) * slope + ds.abs() * slope_error;
  out.d_scores = ds;
  out.d_scores_bound = exact_ds_error;
  out.result_bound = result_bound;
  out.dq_bound = at::matmul(ds_error, k.abs()) * scale;
  out.dk_bound = at::matmul(ds_error.transpose(2, 3), q.abs()) * scale;
  out.dv_bound = at::matmul(((e + t + sums) * pm).transpose(2, 3), d_result.abs());
  return out;
}

inline at::Tensor heads_last(const at::Tensor& x) {  // [b, heads, s, d] -> [s, b, heads * d]
  return x.permute({2, 0, 1, 3}).reshape({x.size(2), x.size(0), x.size(1) * x.size(3)});
}
inline at::Tensor heads_first(const at::Tensor& x, int64_t heads) {  // the inverse
  return x.view({x.size(0), x.size(1), heads, -1}).permute({1, 2, 0, 3});
}
// [s, b, groups, 1 or members, d] -> [b, heads, s, d]
inline at::Tensor of_heads(const at::Tensor& x, Heads heads) {
  return x.expand({x.size(0), x.size(1), heads.groups, heads.per_group(), x.size(4)})
      .reshape({x.size(0), x.size(1), heads.queries, x.size(4)})
      .permute({1, 2, 0, 3});
}
// [b, heads, s, d] -> [s, b, groups, members, d]
inline at::Tensor by_group(const at::Tensor& x, Heads heads) {
  return x.permute({2, 0, 1, 3}).reshape({x.size(2), x.size(0), heads.groups, heads.per_group(), x.size(3)});
}

struct Expected {
  at::Tensor result, d_qkv;              // [s, b, heads * head_size], [s, b, columns]
  at::Tensor result_bound, d_qkv_bound;  // the same shapes
  at::Tensor d_bias, d_bias_bound;       // of a relative bias: [heads, 2 n - 1]
};

// The sum over rows and pairs of each distance: x [b, heads, s, s] -> [heads, 2 n - 1].
inline at::Tensor sum_by_distance(const at::Tensor& x, int64_t distances) {
  const at::Tensor sums = at::zeros({x.size(1), distances}, at::kDouble);
  const at::Tensor of_rows = x.sum(0).contiguous();
  auto sum = sums.accessor<double, 2>();
  auto pair = of_rows.accessor<double, 3>();
  for (int64_t head = 0; head < x.size(1); ++head)
    for (int64_t query = 0; query < x.size(2); ++query)
      for (int64_t key = 0; key < x.size(3); ++key) sum[head][distances / 2 + key - query] += pair[head][query][key];
  return sums;
}

inline Expected expected(const at::Tensor& qkv_of_type, const at::Tensor& d_result_of_type, const Sizes& sizes,
                         const AttentionContext& context, const Rounding& rounding) {
  const at::Tensor qkv = qkv_of_type.detach().to(at::kDouble).requires_grad_(true);
  const Heads heads = sizes.of();
  const at::Tensor parts = qkv.view({sizes.s, sizes.b, heads.groups, heads.parts_of_group(), sizes.head_size});
  FormulaMask mask{visible(sizes.b, sizes.s, sizes.s, context),
                   keep_factors({sizes.b, sizes.heads, sizes.s, sizes.s}, context, "dropout/layers.3.attention"),
                   {},
                   context.scale,
                   context.soft_cap};
  const at::Tensor position = at::arange(sizes.s), distance = position.view({1, -1}) - position.view({-1, 1});
  if (context.alibi_slopes.defined()) mask.bias = context.alibi_slopes.to(at::kDouble).view({-1, 1, 1}) * distance;
  const at::Tensor& bias = context.relative_bias;
  if (bias.defined()) {
    const at::Tensor entries = (distance + bias.size(1) / 2).reshape({-1});
    const at::Tensor relative =
        bias.detach().to(at::kDouble).index_select(1, entries).view({1, sizes.heads, sizes.s, sizes.s});
    mask.bias = mask.bias.defined() ? mask.bias + relative : relative;
  }
  const at::Tensor d_result = heads_first(d_result_of_type.to(at::kDouble), sizes.heads);
  const Formula found = formula(
      of_heads(parts.narrow(3, 0, heads.per_group()), heads), of_heads(parts.narrow(3, heads.per_group(), 1), heads),
      of_heads(parts.narrow(3, heads.per_group() + 1, 1), heads), d_result, mask, rounding, heads.per_group());
  Expected out;
  out.d_qkv = torch::autograd::grad({found.result}, {qkv}, {d_result})[0];
  out.result = heads_last(found.result.detach());
  out.result_bound = heads_last(found.result_bound) + rounding.absolute;
  const at::Tensor bounds = at::cat({by_group(found.dq_bound, heads), by_group(found.dk_bound, heads).sum(3, true),
                                     by_group(found.dv_bound, heads).sum(3, true)},
                                    3);
  out.d_qkv_bound = bounds.reshape(out.d_qkv.sizes()) + rounding.relative * out.d_qkv.abs() + rounding.absolute;
  if (!bias.defined()) return out;
  out.d_bias = sum_by_distance(found.d_scores, bias.size(1));
  out.d_bias_bound =
      sum_by_distance(found.d_scores_bound + double(sizes.b * sizes.s) * 0x1p-24 * found.d_scores.abs(), bias.size(1)) +
      1e-30;
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
  AttentionContext context = make_context(sizes, masks);
  if (masks.relative) context.relative_bias.requires_grad_(true);
  const at::Tensor qkv = random_qkv(sizes, type, size).requires_grad_(true);
  const at::Tensor d_result = at::randn({sizes.s, sizes.b, sizes.heads * sizes.head_size}).to(type);
  const Expected wanted = expected(qkv, d_result, sizes, context, rounding_of(type));
  for (const CpuIsa isa : reference::instruction_sets()) {
    const ForceCpuIsa force(isa);
    const std::string what = describe(sizes, masks, type) + " on " + cpu_isa_name(isa);
    const at::Tensor result = attention(qkv, context, sizes.of(), kLayer);
    ASSERT_EQ(result.scalar_type(), type) << what;
    std::vector<at::Tensor> inputs = {qkv};
    if (masks.relative) inputs.push_back(context.relative_bias);
    const std::vector<at::Tensor> gradients = torch::autograd::grad({result}, inputs, {d_result});
    expect_within(result.detach(), wanted.result, wanted.result_bound, "result, " + what);
    expect_within(gradients[0], wanted.d_qkv, wanted.d_qkv_bound, "gradient, " + what);
    if (masks.relative) expect_within(gradients[1], wanted.d_bias, wanted.d_bias_bound, "gradient of bias, " + what);
  }
}

// NaN where nothing was written: an unwritten position must not be read.
inline KeyValueCache empty_cache(const at::Tensor& qkv, const Sizes& sizes, int64_t room = 5) {
  KeyValueCache cache;
  cache.capacity = sizes.s + room;
  cache.lengths.assign(static_cast<size_t>(sizes.b), 0);
  cache.layers.resize(kLayer + 1);
  const auto empty = [&] {
    return at::full({sizes.b, sizes.of().groups, cache.capacity, sizes.head_size},
                    std::numeric_limits<float>::quiet_NaN(), qkv.options());
  };
  for (KeyValueCache::Layer& layer : cache.layers) layer = {empty(), empty(), {}};
  return cache;
}

// Feeds the positions in pieces through a cache; the context's ranges are cut to the piece.
inline at::Tensor through_cache(const at::Tensor& qkv, AttentionContext context, const Sizes& sizes,
                                const std::vector<int64_t>& pieces) {
  KeyValueCache cache = empty_cache(qkv, sizes);
  const at::Tensor first_key = context.first_key, last_key = context.last_key;
  context.cache = &cache;
  std::vector<at::Tensor> results;
  int64_t length = 0;
  for (const int64_t piece : pieces) {
    if (first_key.defined()) context.first_key = first_key.narrow(1, length, piece).contiguous();
    if (last_key.defined()) context.last_key = last_key.narrow(1, length, piece).contiguous();
    results.push_back(attention(qkv.narrow(0, length, piece).contiguous(), context, sizes.of(), kLayer));
    cache.add_to_lengths(piece);
    length += piece;
  }
  EXPECT_EQ(length, sizes.s);
  return at::cat(results);
}

}  // namespace espalier::kernels::attention_reference
