// Which keys a query sees: bidirectional, prefixes, padding, and queries that see none.
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
namespace attention_masks_test {

using namespace attention_reference;
using reference::random;

constexpr Range kRanges[] = {Range::kFull, Range::kPrefix, Range::kPadding};
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

struct Computed {
  at::Tensor result, d_qkv;
};

Computed compute(const at::Tensor& qkv, const at::Tensor& d_result, const AttentionContext& context, Heads heads) {
  const at::Tensor leaf = qkv.detach().clone().requires_grad_(true);
  const at::Tensor result = attention(leaf, context, heads, kLayer);
  return {result.detach(), torch::autograd::grad({result}, {leaf}, {d_result})[0]};
}

TEST(AttentionMasks, MatchTheFormulaInEverySizeAndType) {
  for (const at::ScalarType type : kTypes) {
    int64_t turn = 0;
    for (const Range range : kRanges) {
      for (const int64_t s : {1, 7, 33, 65, 130}) {
        const int64_t heads = turn % 2 == 0 ? 2 : 4;
        const bool masked = turn % 3 == 0;
        const Sizes sizes{s, 3, heads, turn % 4 == 0 ? 80 : 24, turn % 2 == 0 ? 2 : 1};
        compare_with_formula(sizes, {.dropout = masked, .range = range}, type);
        compare_with_formula(sizes, {.window = true, .alibi = true, .dropout = !masked, .range = range}, type);
        ++turn;
      }
    }
  }
}

TEST(AttentionMasks, BidirectionalDocumentsMatchTheFormula) {
  for (const at::ScalarType type : kTypes) {
    for (const bool window : {false, true}) {
      compare_with_formula({130, 2, 3, 24}, {.documents = true, .window = window, .range = Range::kFull}, type);
      compare_with_formula({200, 1, 2, 64, 1},
                           {.documents = true, .window = window, .alibi = true, .dropout = true, .range = Range::kFull},
                           type);
    }
  }
}

// Two ways to say the same are the same computation.
TEST(AttentionMasks, ARangeThatSaysWhatTheMaskSaysChangesNoBit) {
  const Sizes sizes{130, 2, 3, 24};
  const at::Tensor positions = at::arange(sizes.s, at::kInt).repeat({sizes.b, 1}).contiguous();
  for (const at::ScalarType type : kTypes) {
    const at::Tensor qkv = random_qkv(sizes, type), d_result = random({sizes.s, sizes.b, 3 * 24}, type, 2);
    for (const bool full : {false, true}) {
      AttentionContext by_mask, by_range;
      if (full) by_mask.mask = AttentionContext::Mask::kFull;
      by_range.first_key = at::full_like(positions, -5);                         // what does not exist is cut off
      by_range.last_key = full ? at::full_like(positions, 1 << 30) : positions;  // whatever `mask` is
      const Computed one = compute(qkv, d_result, by_mask, sizes.of());
      const Computed other = compute(qkv, d_result, by_range, sizes.of());
      EXPECT_TRUE(at::equal(one.result, other.result)) << full << " " << c10::toString(type);
      EXPECT_TRUE(at::equal(one.d_qkv, other.d_qkv)) << full << " " << c10::toString(type);
    }
  }
}

TEST(AttentionMasks, AQueryThatSeesNoKeyGetsZeroAndGivesNoGradient) {
  for (const at::ScalarType type : kTypes) {
    for (const int64_t s : {7, 33, 65, 200}) {
      const Sizes sizes{s, 3, 4, 24, 2};
      AttentionContext context;
      // Row 0: every third query; row 1: a tile of them and more; row 2: all.
      const auto blind = [&](int64_t row, int64_t query) {
        return row == 2 || (row == 1 ? query >= 5 && query < 150 : query % 3 == 1);
      };
      context.last_key = keys_by(3, s, [&](int64_t row, int64_t query) { return blind(row, query) ? -1 : query; });
      const at::Tensor qkv = random_qkv(sizes, type), d_result = random({s, 3, 4 * 24}, type, 2);
      for (const CpuIsa isa : reference::instruction_sets()) {
        const ForceCpuIsa force(isa);
        const std::string what = concat("s=", s, " ", c10::toString(type), " on ", cpu_isa_name(isa));
        const Computed found = compute(qkv, d_result, context, sizes.of());
        const at::Tensor d_query =
            found.d_qkv.view({s, 3, 2, 4, 24}).narrow(3, 0, 2).reshape({s, 3, -1});  // [s, b, heads * 24]
        for (int64_t row = 0; row < 3; ++row) {
          for (int64_t query = 0; query < s; ++query) {
            const bool zero = (found.result[query][row] == 0).all().item<bool>();
            EXPECT_EQ(zero, blind(row, query)) << row << " " << query << " " << what;
            EXPECT_TRUE(!zero || (d_query[query][row] == 0).all().item<bool>()) << row << " " << query << " " << what;
          }
        }
        EXPECT_TRUE((found.d_qkv.select(1, 2) == 0).all().item<bool>()) << what;  // keys and values of row 2
        EXPECT_FALSE(at::isnan(found.d_qkv).any().item<bool>()) << what;
      }
    }
  }
}

// Tiles that no query sees are skipped: a NaN in a tile that was multiplied by a probability of 0 would show.
TEST(AttentionMasks, WhatABlockCannotSeeIsNotReadByIt) {
  const Sizes sizes{320, 1, 4, 24, 2};
  constexpr int64_t kBegin = 64, kEnd = 192;  // seen; before and after it are whole tiles of padding
  for (const at::ScalarType type : kTypes) {
    at::Tensor qkv = random_qkv(sizes, type), d_result = random({sizes.s, 1, 4 * 24}, type, 2);
    const at::Tensor clean = qkv.narrow(0, kBegin, kEnd - kBegin).clone();
    const at::Tensor d_clean = d_result.narrow(0, kBegin, kEnd - kBegin).clone();
    for (const at::Tensor& x : {qkv, d_result}) {
      x.narrow(0, 0, kBegin).fill_(std::numeric_limits<float>::quiet_NaN());
      x.narrow(0, kEnd, sizes.s - kEnd).fill_(std::numeric_limits<float>::quiet_NaN());
    }
    AttentionContext context, inner;
    const auto pads = [](int64_t query) { return query < kBegin || query >= kEnd; };
    context.first_key = keys_by(1, sizes.s, [&](int64_t, int64_t query) { return pads(query) ? 0 : kBegin; });
    context.last_key = keys_by(1, sizes.s, [&](int64_t, int64_t query) { return pads(query) ? -1 : kEnd - 1; });
    inner.mask = AttentionContext::Mask::kFull;
    for (const CpuIsa isa : reference::instruction_sets()) {
      const ForceCpuIsa force(isa);
      const std::string what = concat(c10::toString(type), " on ", cpu_isa_name(isa));
      const Computed whole = compute(qkv, d_result, context, sizes.of());
      const Computed alone = compute(clean, d_clean, inner, sizes.of());
      EXPECT_TRUE(at::equal(whole.result.narrow(0, kBegin, kEnd - kBegin), alone.result)) << what;
      EXPECT_TRUE(at::equal(whole.d_qkv.narrow(0, kBegin, kEnd - kBegin), alone.d_qkv)) << what;
      for (const at::Tensor& x : {whole.result, whole.d_qkv}) {
        EXPECT_TRUE((x.narrow(0, 0, kBegin) == 0).all().item<bool>()) << what;
        EXPECT_TRUE((x.narrow(0, kEnd, sizes.s - kEnd) == 0).all().item<bool>()) << what;
      }
    }
  }
}

TEST(AttentionMasks, ThreadsThatShareAGroupChangeNoBit) {
  const int threads_before = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Range range : kRanges) {
      const Sizes sizes{600, 1, 4, 24, 1};
      const Masks masks{.window = range == Range::kFull, .dropout = true, .range = range};
      const AttentionContext context = make_context(sizes, masks);
      const at::Tensor qkv = random_qkv(sizes, type), d_result = random({sizes.s, 1, 4 * 24}, type, 2);
      std::vector<Computed> computed;
      for (int threads = 1; threads <= 4; ++threads) {
        at::set_num_threads(threads);
        computed.push_back(compute(qkv, d_result, context, sizes.of()));
      }
      for (int threads = 2; threads <= 4; ++threads) {
        const std::string what = concat(threads, " threads, ", describe(sizes, masks, type));
        EXPECT_TRUE(at::equal(computed[threads - 1].result, computed[0].result)) << what;
        EXPECT_TRUE(at::equal(computed[threads - 1].d_qkv, computed[0].d_qkv)) << what;
      }
    }
  }
  at::set_num_threads(threads_before);
}

TEST(AttentionMasks, RangesOfAnotherShapeAreABug) {
  const at::Tensor qkv = at::zeros({5, 2, 3 * 8});
  for (const at::Tensor& keys : {at::zeros({5, 2}, at::kInt), at::zeros({2, 4}, at::kInt), at::zeros({2, 5}, at::kLong),
                                 at::zeros({5, 2}, at::kInt).t()}) {
    AttentionContext first, last;
    first.first_key = keys;
    last.last_key = keys;
    EXPECT_THROW(attention(qkv, first, {1, 1}, 0), InternalError) << keys.sizes();
    EXPECT_THROW(attention(qkv, last, {1, 1}, 0), InternalError) << keys.sizes();
  }
}

}  // namespace attention_masks_test
}  // namespace espalier::kernels
