// A bias by distance, its gradient, and a scale of the caller's.
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
namespace attention_relative_test {

using namespace attention_reference;
using reference::random;

constexpr Range kRanges[] = {Range::kCausal, Range::kFull, Range::kPrefix, Range::kPadding};
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

struct Computed {
  at::Tensor result, d_qkv, d_bias;
};

Computed compute(const at::Tensor& qkv, const at::Tensor& d_result, AttentionContext context, Heads heads) {
  const at::Tensor leaf = qkv.detach().clone().requires_grad_(true);
  const at::Tensor bias = context.relative_bias.detach().clone().requires_grad_(true);
  context.relative_bias = bias;
  const at::Tensor result = attention(leaf, context, heads, kLayer);
  const std::vector<at::Tensor> gradients = torch::autograd::grad({result}, {leaf, bias}, {d_result});
  return {result.detach(), gradients[0], gradients[1]};
}

void expect_equal(const Computed& found, const Computed& wanted, const std::string& what) {
  EXPECT_TRUE(at::equal(found.result, wanted.result)) << what;
  EXPECT_TRUE(at::equal(found.d_qkv, wanted.d_qkv)) << what;
  EXPECT_TRUE(at::equal(found.d_bias, wanted.d_bias)) << what;
}

TEST(AttentionRelative, MatchesTheFormulaInEverySizeTypeAndRange) {
  for (const at::ScalarType type : kTypes) {
    int64_t turn = 0;
    for (const Range range : kRanges) {
      for (const int64_t s : {1, 7, 33, 65, 130}) {
        const int64_t heads = turn % 2 == 0 ? 2 : 4;
        const bool masked = turn % 3 == 0;
        const Sizes sizes{s, 3, heads, turn % 4 == 0 ? 80 : 24, turn % 2 == 0 ? 2 : 1};
        compare_with_formula(sizes, {.dropout = masked, .range = range, .relative = true}, type);
        compare_with_formula(
            sizes, {.window = true, .dropout = !masked, .range = range, .relative = true, .scaled = true}, type);
        ++turn;
      }
    }
  }
}

TEST(AttentionRelative, MatchesTheFormulaBesideDocumentsAndAlibi) {
  for (const at::ScalarType type : kTypes) {
    for (const Range range : {Range::kCausal, Range::kFull}) {
      compare_with_formula({130, 2, 3, 24}, {.documents = true, .range = range, .relative = true}, type);
      compare_with_formula({200, 1, 2, 64, 1},
                           {.documents = true,
                            .window = true,
                            .alibi = true,
                            .dropout = true,
                            .range = range,
                            .relative = true,
                            .scaled = true},
                           type);
    }
  }
}

TEST(AttentionRelative, AScaleAloneMatchesTheFormula) {
  for (const at::ScalarType type : kTypes) {
    compare_with_formula({33, 2, 2, 24}, {.scaled = true}, type);
    compare_with_formula({130, 1, 4, 64, 2}, {.dropout = true, .range = Range::kFull, .scaled = true}, type);
  }
}

// The cap comes before the biases, which may lead beyond it.
TEST(AttentionSoftCap, MatchesTheFormulaInEverySizeTypeAndRange) {
  for (const at::ScalarType type : kTypes) {
    int64_t turn = 0;
    for (const Range range : kRanges) {
      for (const int64_t s : {1, 7, 33, 65, 130}) {
        const Sizes sizes{s, 3, turn % 2 == 0 ? 2 : 4, turn % 4 == 0 ? 80 : 24, turn % 2 == 0 ? 2 : 1};
        compare_with_formula(sizes, {.dropout = turn % 3 == 0, .range = range, .capped = true}, type, 2);
        ++turn;
      }
      compare_with_formula({130, 2, 3, 24}, {.documents = true, .window = true, .alibi = true, .capped = true}, type);
      compare_with_formula(
          {67, 2, 4, 24, 2},
          {.alibi = true, .dropout = true, .range = range, .relative = true, .scaled = true, .capped = true}, type);
    }
  }
}

TEST(AttentionSoftCap, DecodingThroughACacheGivesTheRowsOfTheWhole) {
  const Sizes sizes{130, 2, 4, 80, 2};
  for (const at::ScalarType type : kTypes) {
    const Masks masks{.alibi = true, .relative = true, .scaled = true, .capped = true};
    const AttentionContext context = make_context(sizes, masks);
    const at::Tensor qkv = random_qkv(sizes, type);
    std::vector<int64_t> pieces = {40, 1, 8, 33};
    while (pieces.size() < 52) pieces.push_back(1);
    const Expected wanted =
        expected(qkv, at::zeros({sizes.s, sizes.b, sizes.heads * sizes.head_size}), sizes, context, rounding_of(type));
    for (const CpuIsa isa : reference::instruction_sets()) {
      const ForceCpuIsa force(isa);
      expect_within(through_cache(qkv, context, sizes, pieces), wanted.result, wanted.result_bound,
                    describe(sizes, masks, type) + " on " + cpu_isa_name(isa));
    }
  }
}

TEST(AttentionRelative, GradientIsTheSlopeOfFiniteDifferences) {
  const Sizes sizes{37, 2, 3, 16};
  for (const Range range : {Range::kCausal, Range::kFull}) {
    const Masks masks{.documents = true, .dropout = true, .range = range, .relative = true};
    const AttentionContext context = make_context(sizes, masks);
    const at::Tensor qkv = random_qkv(sizes, at::kFloat);
    const at::Tensor weights = at::randn({sizes.s, sizes.b, sizes.heads * sizes.head_size}, at::kDouble);
    const auto loss = [&](const at::Tensor& bias) {
      AttentionContext biased = context;
      biased.relative_bias = bias;
      return (attention(qkv, biased, sizes.of(), kLayer).to(at::kDouble) * weights).sum();
    };
    // Nothing but the bias asks for a gradient.
    const at::Tensor leaf = context.relative_bias.clone().requires_grad_(true);
    const at::Tensor gradient = torch::autograd::grad({loss(leaf)}, {leaf})[0];
    for (int64_t trial = 0; trial < 3; ++trial) {
      const at::Tensor direction = at::randn_like(leaf);
      const double step = 0x1p-10;
      const double slope =
          ((loss(context.relative_bias + step * direction) - loss(context.relative_bias - step * direction)) /
           (2 * step))
              .item<double>();
      const double wanted = (gradient.to(at::kDouble) * direction).sum().item<double>();
      EXPECT_NEAR(slope, wanted, 2e-3 * gradient.norm().item<double>());
    }
  }
}

TEST(AttentionRelative, ABiasOfZerosChangesNoBit) {
  const Sizes sizes{130, 2, 4, 24, 2};
  for (const at::ScalarType type : kTypes) {
    for (const CpuIsa isa : reference::instruction_sets()) {
      const ForceCpuIsa force(isa);
      const Masks masks{.documents = true, .dropout = true};
      AttentionContext context = make_context(sizes, masks);
      const at::Tensor qkv = random_qkv(sizes, type).requires_grad_(true);
      const at::Tensor d_result = random({sizes.s, sizes.b, 4 * 24}, type, 2);
      const at::Tensor result = attention(qkv, context, sizes.of(), kLayer);
      const at::Tensor d_qkv = torch::autograd::grad({result}, {qkv}, {d_result})[0];
      context.relative_bias = at::zeros({4, 2 * sizes.s - 1});
      const Computed found = compute(qkv, d_result, context, sizes.of());
      const std::string what = concat(c10::toString(type), " on ", cpu_isa_name(isa));
      EXPECT_TRUE(at::equal(found.result, result)) << what;
      EXPECT_TRUE(at::equal(found.d_qkv, d_qkv)) << what;
    }
  }
}

// A bias may be longer than the rows: what it has beyond changes nothing, and has no gradient.
TEST(AttentionRelative, DistancesThatNoPairHasDoNotCount) {
  const Sizes sizes{33, 2, 3, 24};
  for (const at::ScalarType type : kTypes) {
    const at::Tensor qkv = random_qkv(sizes, type), d_result = random({sizes.s, sizes.b, 3 * 24}, type, 2);
    for (const Range range : kRanges) {
      AttentionContext context = make_context(sizes, {.range = range});
      context.relative_bias = random_relative_bias(3, sizes.s);
      const Computed exact = compute(qkv, d_result, context, sizes.of());
      const int64_t more = 100;
      context.relative_bias =
          at::constant_pad_nd(context.relative_bias, {more, more}, std::numeric_limits<float>::quiet_NaN());
      const Computed longer = compute(qkv, d_result, context, sizes.of());
      EXPECT_TRUE(at::equal(longer.result, exact.result));
      EXPECT_TRUE(at::equal(longer.d_qkv, exact.d_qkv));
      EXPECT_TRUE(at::equal(longer.d_bias, at::constant_pad_nd(exact.d_bias, {more, more})));
      const at::Tensor later = exact.d_bias.narrow(1, sizes.s, sizes.s - 1);  // keys after their query
      EXPECT_EQ((later == 0).all().item<bool>(), range == Range::kCausal);
    }
  }
}

TEST(AttentionRelative, DecodingThroughACacheGivesTheRowsOfTheWhole) {
  for (const Sizes& sizes : {Sizes{130, 2, 4, 80, 2}, Sizes{130, 1, 6, 24, 1}}) {
    for (const at::ScalarType type : kTypes) {
      const Masks masks{.relative = true, .scaled = true};
      AttentionContext context = make_context(sizes, masks);
      context.relative_bias.requires_grad_(true);
      const at::Tensor qkv = random_qkv(sizes, type);
      std::vector<int64_t> pieces = {40, 1, 8, 33};
      while (pieces.size() < 52) pieces.push_back(1);
      const Expected wanted = expected(qkv, at::zeros({sizes.s, sizes.b, sizes.heads * sizes.head_size}), sizes,
                                       context, rounding_of(type));
      for (const CpuIsa isa : reference::instruction_sets()) {
        const ForceCpuIsa force(isa);
        const at::Tensor found = through_cache(qkv, context, sizes, pieces);
        EXPECT_FALSE(found.requires_grad());
        expect_within(found, wanted.result, wanted.result_bound,
                      describe(sizes, masks, type) + " on " + cpu_isa_name(isa));
      }
    }
  }
}

TEST(AttentionRelative, HeadsOfTheShardsPutTogetherEqualTheWholeToTheBit) {
  const Sizes sizes{67, 2, 6, 24, 3};
  const Heads shard{2, 1};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const AttentionContext whole_context = make_context(sizes, {.dropout = true, .relative = true});
    const at::Tensor qkv = random_qkv(sizes, type), d_result = random({sizes.s, sizes.b, 6 * 24}, type, 2);
    const Computed whole = compute(qkv, d_result, whole_context, sizes.of());
    std::vector<Computed> parts;
    for (int64_t group = 0; group < 3; ++group) {
      AttentionContext context = whole_context;
      context.first_head = 2 * group;
      context.relative_bias = context.relative_bias.narrow(0, 2 * group, 2);
      const int64_t columns = shard.columns(sizes.head_size);
      parts.push_back(compute(qkv.narrow(2, group * columns, columns).contiguous(),
                              d_result.narrow(2, group * 2 * 24, 2 * 24), context, shard));
    }
    const auto joined = [&](at::Tensor Computed::*what, int64_t dim) {
      return at::cat({parts[0].*what, parts[1].*what, parts[2].*what}, dim);
    };
    expect_equal({joined(&Computed::result, 2), joined(&Computed::d_qkv, 2), joined(&Computed::d_bias, 0)}, whole,
                 c10::toString(type));
  }
}

// Groups left over are shared by the threads tile by tile; one thread never does.
TEST(AttentionRelative, ThreadsThatShareAGroupChangeNoBit) {
  const int threads_before = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Sizes& sizes : {Sizes{600, 1, 4, 24, 1}, Sizes{600, 3, 2, 24, 2}, Sizes{33, 5, 2, 24, 1}}) {
      for (const Range range : kRanges) {
        const Masks masks{.window = range == Range::kPrefix, .dropout = true, .range = range, .relative = true};
        const AttentionContext context = make_context(sizes, masks);
        const at::Tensor qkv = random_qkv(sizes, type);
        const at::Tensor d_result = random({sizes.s, sizes.b, sizes.heads * sizes.head_size}, type, 2);
        std::vector<Computed> computed;
        for (int threads = 1; threads <= 4; ++threads) {
          at::set_num_threads(threads);
          computed.push_back(compute(qkv, d_result, context, sizes.of()));
        }
        for (int threads = 2; threads <= 4; ++threads)
          expect_equal(computed[threads - 1], computed[0], concat(threads, " threads, ", describe(sizes, masks, type)));
      }
    }
  }
  at::set_num_threads(threads_before);
}

// One row after another, in their order.
TEST(AttentionRelative, TheGradientOfABatchIsTheSumOfItsRows) {
  const Sizes sizes{67, 3, 2, 24};
  const AttentionContext context = make_context(sizes, {.range = Range::kFull, .relative = true});
  const at::Tensor qkv = random_qkv(sizes, at::kFloat), d_result = random({sizes.s, 3, 48}, at::kFloat, 2);
  const Computed whole = compute(qkv, d_result, context, sizes.of());
  at::Tensor sum = at::zeros_like(context.relative_bias);
  for (int64_t row = 0; row < 3; ++row)
    sum += compute(qkv.narrow(1, row, 1).contiguous(), d_result.narrow(1, row, 1), context, sizes.of()).d_bias;
  EXPECT_TRUE(at::equal(whole.d_bias, sum));
}

TEST(AttentionRelative, ArgumentsThatDoNotFitAreABug) {
  const at::Tensor qkv = at::zeros({5, 1, Heads{4, 2}.columns(8)});
  const auto with = [&](const at::Tensor& bias) {
    AttentionContext context;
    context.relative_bias = bias;
    return context;
  };
  EXPECT_NO_THROW(attention(qkv, with(at::zeros({4, 9})), {4, 2}, 0));
  EXPECT_THROW(attention(qkv, with(at::zeros({4, 7})), {4, 2}, 0), InternalError);   // four keys
  EXPECT_THROW(attention(qkv, with(at::zeros({4, 10})), {4, 2}, 0), InternalError);  // no middle
  EXPECT_THROW(attention(qkv, with(at::zeros({2, 9})), {4, 2}, 0), InternalError);   // heads
  EXPECT_THROW(attention(qkv, with(at::zeros({9})), {4, 2}, 0), InternalError);
  EXPECT_THROW(attention(qkv, with(at::zeros({9, 4}).t()), {4, 2}, 0), InternalError);
  EXPECT_THROW(attention(qkv, with(at::zeros({4, 9}, at::kBFloat16)), {4, 2}, 0), InternalError);
  AttentionContext context;
  context.scale = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(attention(qkv, context, {4, 2}, 0), InternalError);

  AttentionContext cross = with(at::zeros({1, 19}));
  cross.mask = AttentionContext::Mask::kFull;
  EXPECT_THROW(cross_attention(at::zeros({5, 1, 8}), at::zeros({7, 1, 16}), cross, {1, 1}, 0), InternalError);
  cross.relative_bias = at::Tensor();
  EXPECT_NO_THROW(cross_attention(at::zeros({5, 1, 8}), at::zeros({7, 1, 16}), cross, {1, 1}, 0));
}

TEST(AttentionRelative, ABiasTooShortForTheCacheIsABug) {
  const Sizes sizes{4, 2, 1, 8};
  const at::Tensor qkv = random_qkv(sizes, at::kFloat);
  AttentionContext context;
  KeyValueCache cache = empty_cache(qkv, sizes);  // of nine positions
  context.cache = &cache;
  cache.lengths = {0, 5};
  for (const at::Tensor& part : {cache.layers[kLayer].keys, cache.layers[kLayer].values}) part.zero_();
  context.relative_bias = at::zeros({1, 2 * 8 - 1});
  EXPECT_THROW(attention(qkv, context, {1, 1}, kLayer), InternalError);
  context.relative_bias = at::zeros({1, 2 * 9 - 1});
  EXPECT_NO_THROW(attention(qkv, context, {1, 1}, kLayer));
}

}  // namespace attention_relative_test
}  // namespace espalier::kernels
