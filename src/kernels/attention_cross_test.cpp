// Attention from the positions of one sequence to those of another.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/attention_reference_test.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace attention_cross_test {

using namespace attention_reference;
using reference::random;

struct CrossSizes {
  int64_t s, sk, b;
  Heads heads;
  int64_t head_size;

  at::Tensor query(at::ScalarType type) const { return random({s, b, heads.query_columns(head_size)}, type, 1); }
  at::Tensor key_value(at::ScalarType type) const {
    return random({sk, b, heads.key_value_columns(head_size)}, type, 2);
  }
  at::Tensor d_result(at::ScalarType type) const { return random({s, b, heads.query_columns(head_size)}, type, 3); }
};

std::string describe(const CrossSizes& z, Range range, bool dropout, at::ScalarType type) {
  return concat("s=", z.s, " sk=", z.sk, " b=", z.b, " heads=", z.heads.queries, "/", z.heads.groups,
                " head_size=", z.head_size, range == Range::kPadding ? " padding" : "", dropout ? " dropout " : " ",
                c10::toString(type));
}

AttentionContext make_cross_context(const CrossSizes& z, Range range, bool dropout) {
  AttentionContext context;
  context.mask = AttentionContext::Mask::kFull;
  set_range(context, range, z.b, z.s, z.sk);
  if (!dropout) return context;
  context.dropout = 0.3;
  context.seed = 1234;
  for (int64_t row = 0; row < z.b; ++row) context.sample_numbers.push_back((row << 33) + 77 * row + 5);
  return context;
}

struct CrossExpected {
  at::Tensor result, d_query, d_key_value;
  at::Tensor result_bound, d_query_bound, d_key_value_bound;
};

CrossExpected expected_cross(const at::Tensor& query_of_type, const at::Tensor& key_value_of_type,
                             const at::Tensor& d_result_of_type, const CrossSizes& z, const AttentionContext& context,
                             const Rounding& rounding) {
  const Heads heads = z.heads;
  const at::Tensor query = query_of_type.detach().to(at::kDouble).requires_grad_(true);
  const at::Tensor key_value = key_value_of_type.detach().to(at::kDouble).requires_grad_(true);
  const at::Tensor parts = key_value.view({z.sk, z.b, heads.groups, 2, z.head_size});
  const at::Tensor d_result = heads_first(d_result_of_type.to(at::kDouble), heads.queries);
  const FormulaMask mask{visible(z.b, z.s, z.sk, context),
                         keep_factors({z.b, heads.queries, z.s, z.sk}, context, "dropout/layers.3.cross_attention"),
                         {}};
  const Formula found = formula(heads_first(query, heads.queries), of_heads(parts.narrow(3, 0, 1), heads),
                                of_heads(parts.narrow(3, 1, 1), heads), d_result, mask, rounding, heads.per_group());
  CrossExpected out;
  const auto gradients = torch::autograd::grad({found.result}, {query, key_value}, {d_result});
  const double t = rounding.relative, least = rounding.absolute;
  out.result = heads_last(found.result.detach());
  out.d_query = gradients[0];
  out.d_key_value = gradients[1];
  out.result_bound = heads_last(found.result_bound) + least;
  out.d_query_bound = heads_last(found.dq_bound) + t * out.d_query.abs() + least;
  const at::Tensor bounds =
      at::cat({by_group(found.dk_bound, heads).sum(3, true), by_group(found.dv_bound, heads).sum(3, true)}, 3);
  out.d_key_value_bound = bounds.reshape(out.d_key_value.sizes()) + t * out.d_key_value.abs() + least;
  return out;
}

struct Computed {
  at::Tensor result, d_query, d_key_value;
};

Computed compute(const at::Tensor& query, const at::Tensor& key_value, const at::Tensor& d_result,
                 const AttentionContext& context, Heads heads) {
  const at::Tensor q = query.detach().clone().requires_grad_(true);
  const at::Tensor kv = key_value.detach().clone().requires_grad_(true);
  const at::Tensor result = cross_attention(q, kv, context, heads, kLayer);
  const auto gradients = torch::autograd::grad({result}, {q, kv}, {d_result});
  return {result.detach(), gradients[0], gradients[1]};
}

void compare_cross(const CrossSizes& z, Range range, bool dropout, at::ScalarType type) {
  const AttentionContext context = make_cross_context(z, range, dropout);
  const at::Tensor query = z.query(type), key_value = z.key_value(type), d_result = z.d_result(type);
  const CrossExpected wanted = expected_cross(query, key_value, d_result, z, context, rounding_of(type));
  for (const CpuIsa isa : reference::instruction_sets()) {
    const ForceCpuIsa force(isa);
    const std::string what = describe(z, range, dropout, type) + " on " + cpu_isa_name(isa);
    const Computed found = compute(query, key_value, d_result, context, z.heads);
    ASSERT_EQ(found.result.scalar_type(), type) << what;
    expect_within(found.result, wanted.result, wanted.result_bound, "result, " + what);
    expect_within(found.d_query, wanted.d_query, wanted.d_query_bound, "gradient of queries, " + what);
    expect_within(found.d_key_value, wanted.d_key_value, wanted.d_key_value_bound, "gradient of keys, " + what);
    // Without a graph, and as generation asks for it: few queries have a kernel of their own.
    EXPECT_TRUE(at::equal(cross_attention(query, key_value, context, z.heads, kLayer), found.result)) << what;
    KeyValueCache cache;
    AttentionContext cached = context;
    cached.cache = &cache;
    expect_within(cross_attention(query, key_value, cached, z.heads, kLayer), wanted.result, wanted.result_bound,
                  "cached, " + what);
  }
}

TEST(CrossAttention, MatchesTheFormulaInEverySizeAndType) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    int64_t turn = 0;
    for (const int64_t s : {1, 7, 33, 65, 130}) {
      for (const int64_t sk : {1, 7, 33, 65, 130}) {
        const Heads heads = turn % 3 == 0 ? Heads{4, 2} : turn % 3 == 1 ? Heads{3, 3} : Heads{2, 1};
        const CrossSizes sizes{s, sk, 3, heads, turn % 4 == 0 ? 80 : turn % 4 == 1 ? 64 : 24};
        compare_cross(sizes, turn % 2 == 0 ? Range::kFull : Range::kPadding, turn % 5 < 2, type);
        ++turn;
      }
    }
    compare_cross({33, 200, 3, {4, 2}, 24}, Range::kPadding, true, type);
    compare_cross({200, 33, 3, {4, 1}, 24}, Range::kPadding, true, type);
  }
}

TEST(CrossAttention, OfASequenceToItselfIsFullSelfAttention) {
  const Sizes sizes{130, 2, 4, 24, 2};
  const Heads heads = sizes.of();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor qkv = random_qkv(sizes, type);
    const at::Tensor parts = qkv.view({sizes.s, sizes.b, heads.groups, heads.parts_of_group(), sizes.head_size});
    const auto part = [&](int64_t from, int64_t count) {
      return parts.narrow(3, from, count).reshape({sizes.s, sizes.b, -1}).contiguous();
    };
    AttentionContext full;
    full.mask = AttentionContext::Mask::kFull;
    const at::Tensor self = attention(qkv, full, heads, kLayer);
    EXPECT_TRUE(at::equal(cross_attention(part(0, 2), part(2, 2), full, heads, kLayer), self));
  }
}

// The keys past the longest that some query sees are not read: padding may be most of a row.
TEST(CrossAttention, WhatNoQuerySeesIsNotRead) {
  const CrossSizes sizes{40, 320, 1, {4, 2}, 24};
  constexpr int64_t kSeen = 128;
  AttentionContext padded, full;
  full.mask = AttentionContext::Mask::kFull;
  padded.last_key = keys_by(1, sizes.s, [](int64_t, int64_t) { return kSeen - 1; });
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor query = sizes.query(type), key_value = sizes.key_value(type), d_result = sizes.d_result(type);
    const at::Tensor clean = key_value.narrow(0, 0, kSeen).clone();
    key_value.narrow(0, kSeen, sizes.sk - kSeen).fill_(std::numeric_limits<float>::quiet_NaN());
    for (const CpuIsa isa : reference::instruction_sets()) {
      const ForceCpuIsa force(isa);
      const std::string what = concat(c10::toString(type), " on ", cpu_isa_name(isa));
      const Computed whole = compute(query, key_value, d_result, padded, sizes.heads);
      const Computed alone = compute(query, clean, d_result, full, sizes.heads);
      EXPECT_TRUE(at::equal(whole.result, alone.result)) << what;
      EXPECT_TRUE(at::equal(whole.d_query, alone.d_query)) << what;
      EXPECT_TRUE(at::equal(whole.d_key_value.narrow(0, 0, kSeen), alone.d_key_value)) << what;
      EXPECT_TRUE((whole.d_key_value.narrow(0, kSeen, sizes.sk - kSeen) == 0).all().item<bool>()) << what;
    }
  }
}

TEST(CrossAttention, GroupsOfTheShardsPutTogetherEqualTheWholeToTheBit) {
  const CrossSizes sizes{67, 41, 2, {6, 3}, 24};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const AttentionContext context = make_cross_context(sizes, Range::kPadding, true);
    const at::Tensor query = sizes.query(type), key_value = sizes.key_value(type), d_result = sizes.d_result(type);
    const Computed whole = compute(query, key_value, d_result, context, sizes.heads);
    std::vector<at::Tensor> results, d_queries, d_key_values;
    for (int64_t group = 0; group < 3; ++group) {
      AttentionContext part = context;
      part.first_head = 2 * group;
      const auto cut = [&](const at::Tensor& x) { return x.narrow(2, group * 48, 48).contiguous(); };
      const Computed shard = compute(cut(query), cut(key_value), cut(d_result), part, {2, 1});
      results.push_back(shard.result);
      d_queries.push_back(shard.d_query);
      d_key_values.push_back(shard.d_key_value);
    }
    EXPECT_TRUE(at::equal(at::cat(results, 2), whole.result)) << c10::toString(type);
    EXPECT_TRUE(at::equal(at::cat(d_queries, 2), whole.d_query)) << c10::toString(type);
    EXPECT_TRUE(at::equal(at::cat(d_key_values, 2), whole.d_key_value)) << c10::toString(type);
  }
}

TEST(CrossAttention, ThreadsThatShareAGroupChangeNoBit) {
  const int threads_before = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const CrossSizes& sizes : {CrossSizes{600, 130, 1, {4, 1}, 24}, CrossSizes{130, 600, 1, {3, 3}, 24}}) {
      const AttentionContext context = make_cross_context(sizes, Range::kPadding, true);
      const at::Tensor query = sizes.query(type), key_value = sizes.key_value(type), d_result = sizes.d_result(type);
      std::vector<Computed> computed;
      for (int threads = 1; threads <= 4; ++threads) {
        at::set_num_threads(threads);
        computed.push_back(compute(query, key_value, d_result, context, sizes.heads));
      }
      for (int threads = 2; threads <= 4; ++threads) {
        const std::string what = concat(threads, " threads, ", describe(sizes, Range::kPadding, true, type));
        EXPECT_TRUE(at::equal(computed[threads - 1].result, computed[0].result)) << what;
        EXPECT_TRUE(at::equal(computed[threads - 1].d_query, computed[0].d_query)) << what;
        EXPECT_TRUE(at::equal(computed[threads - 1].d_key_value, computed[0].d_key_value)) << what;
      }
    }
  }
  at::set_num_threads(threads_before);
}

// A frozen encoder, or a frozen decoder.
TEST(CrossAttention, EitherInputAloneGetsItsGradient) {
  const CrossSizes sizes{33, 7, 2, {2, 2}, 24};
  const AttentionContext context = make_cross_context(sizes, Range::kFull, false);
  const at::Tensor query = sizes.query(at::kFloat), key_value = sizes.key_value(at::kFloat);
  const at::Tensor d_result = sizes.d_result(at::kFloat);
  const Computed both = compute(query, key_value, d_result, context, sizes.heads);
  for (const bool of_query : {false, true}) {
    const at::Tensor leaf = (of_query ? query : key_value).clone().requires_grad_(true);
    const at::Tensor result =
        cross_attention(of_query ? leaf : query, of_query ? key_value : leaf, context, sizes.heads, kLayer);
    const at::Tensor found = torch::autograd::grad({result}, {leaf}, {d_result})[0];
    EXPECT_TRUE(at::equal(found, of_query ? both.d_query : both.d_key_value)) << of_query;
  }
}

TEST(CrossAttention, ArgumentsThatDoNotFitAreABug) {
  const at::Tensor query = at::zeros({5, 2, 4 * 8}), key_value = at::zeros({3, 2, 2 * 2 * 8});
  AttentionContext full;
  full.mask = AttentionContext::Mask::kFull;
  EXPECT_NO_THROW(cross_attention(query, key_value, full, {4, 2}, 0));
  EXPECT_THROW(cross_attention(query, key_value, {}, {4, 2}, 0), InternalError);                // causal
  EXPECT_THROW(cross_attention(query, key_value, full, {4, 4}, 0), InternalError);              // heads of 8 and of 4
  EXPECT_THROW(cross_attention(query, key_value, full, {4, 3}, 0), InternalError);              // 3 do not divide 4
  EXPECT_THROW(cross_attention(query, at::zeros({3, 1, 32}), full, {4, 2}, 0), InternalError);  // one row
  EXPECT_THROW(cross_attention(query, key_value.to(at::kBFloat16), full, {4, 2}, 0), InternalError);
  AttentionContext window = full, alibi = full, keys = full;
  window.window = 3;
  EXPECT_THROW(cross_attention(query, key_value, window, {4, 2}, 0), InternalError);
  alibi.alibi_slopes = alibi_slopes(4);
  EXPECT_THROW(cross_attention(query, key_value, alibi, {4, 2}, 0), InternalError);
  keys.last_key = at::zeros({2, 3}, at::kInt);  // of keys, not of queries
  EXPECT_THROW(cross_attention(query, key_value, keys, {4, 2}, 0), InternalError);
  keys.last_key = at::zeros({2, 5}, at::kInt);
  EXPECT_NO_THROW(cross_attention(query, key_value, keys, {4, 2}, 0));
}

}  // namespace attention_cross_test
}  // namespace espalier::kernels
