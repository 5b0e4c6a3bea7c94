// Grouped-query attention: query heads that share a key head and a value head.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/attention_reference_test.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace attention_groups_test {

using namespace attention_reference;
using reference::random;

TEST(AttentionGroups, MatchTheFormulaInEverySizeAndType) {
  const std::vector<int64_t> lengths = {1, 7, 33, 65, 100};
  int64_t turn = 0;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t groups : {1, 2, 6}) {
      for (const int64_t head_size : {64, 80, 96, 128}) {
        const bool masked = turn / 3 % 2 == 1;
        compare_with_formula({lengths[turn++ % 5], 2, 6, head_size, groups}, {masked, masked, masked, masked}, type);
      }
    }
  }
}

TEST(AttentionGroups, WindowsMatchTheFormulaWithAndWithoutDocuments) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const bool documents : {false, true}) {
      compare_with_formula({200, 1, 4, 24, 2}, {.documents = documents, .window = true}, type);
    }
  }
}

TEST(AttentionGroups, DecodingThroughACacheGivesTheRowsOfTheWhole) {
  for (const Sizes& sizes : {Sizes{130, 2, 4, 80, 2}, Sizes{130, 1, 6, 24, 1}}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const Masks& masks :
           {Masks{}, Masks{.documents = true, .alibi = true}, Masks{.documents = true, .window = true}}) {
        const AttentionContext context = make_context(sizes, masks);
        const at::Tensor qkv = random_qkv(sizes, type).requires_grad_(true);
        std::vector<int64_t> pieces = {40, 1, 8, 33};
        while (pieces.size() < 52) pieces.push_back(1);
        const Expected wanted = expected(qkv, at::zeros({sizes.s, sizes.b, sizes.heads * sizes.head_size}), sizes,
                                         context, rounding_of(type));
        for (const CpuIsa isa : reference::instruction_sets()) {
          const ForceCpuIsa force(isa);
          expect_within(through_cache(qkv, context, sizes, pieces), wanted.result, wanted.result_bound,
                        describe(sizes, masks, type) + " on " + cpu_isa_name(isa));
        }
      }
    }
  }
}

// Keys that the window leaves unseen are not even packed, whether one thread has the group or all share it.
TEST(AttentionGroups, AWindowOverALongCacheGivesTheRowsOfTheWhole) {
  for (const Sizes& sizes : {Sizes{250, 1, 4, 24, 1}, Sizes{250, 2, 2, 24, 1}}) {
    for (const bool documents : {false, true}) {
      const Masks masks{.documents = documents, .window = true};
      const AttentionContext context = make_context(sizes, masks);
      const at::Tensor qkv = random_qkv(sizes, at::kFloat);
      const Expected wanted = expected(qkv, at::zeros({sizes.s, sizes.b, sizes.heads * sizes.head_size}), sizes,
                                       context, rounding_of(at::kFloat));
      expect_within(through_cache(qkv, context, sizes, {90, 160}), wanted.result, wanted.result_bound,
                    describe(sizes, masks, at::kFloat));
    }
  }
}

struct Computed {
  at::Tensor result, d_qkv;
};

Computed compute(const at::Tensor& qkv, const at::Tensor& d_result, const AttentionContext& context, Heads heads) {
  const at::Tensor leaf = qkv.detach().clone().requires_grad_(true);
  const at::Tensor result = attention(leaf, context, heads, kLayer);
  return {result.detach(), torch::autograd::grad({result}, {leaf}, {d_result})[0]};
}

TEST(AttentionGroups, GroupsOfTheShardsPutTogetherEqualTheWholeToTheBit) {
  const Sizes sizes{67, 2, 6, 24, 3};
  const Heads shard{2, 1};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const AttentionContext whole_context = make_context(sizes, {true, true, true, true});
    const at::Tensor qkv = random_qkv(sizes, type), d_result = random({sizes.s, sizes.b, 6 * 24}, type, 2);
    const Computed whole = compute(qkv, d_result, whole_context, sizes.of());
    std::vector<at::Tensor> results, d_qkvs;
    for (int64_t group = 0; group < 3; ++group) {
      AttentionContext context = whole_context;
      context.first_head = 2 * group;
      context.alibi_slopes = context.alibi_slopes.narrow(0, 2 * group, 2).contiguous();
      const int64_t columns = shard.columns(sizes.head_size);
      const Computed part = compute(qkv.narrow(2, group * columns, columns).contiguous(),
                                    d_result.narrow(2, group * 2 * 24, 2 * 24), context, shard);
      results.push_back(part.result);
      d_qkvs.push_back(part.d_qkv);
    }
    EXPECT_TRUE(at::equal(at::cat(results, 2), whole.result)) << c10::toString(type);
    EXPECT_TRUE(at::equal(at::cat(d_qkvs, 2), whole.d_qkv)) << c10::toString(type);
  }
}

// Groups left over are shared by the threads tile by tile, and single queries by heads; one thread never does.
TEST(AttentionGroups, ThreadsThatShareAGroupChangeNoBit) {
  const int threads_before = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Sizes& sizes : {Sizes{600, 1, 4, 24, 1}, Sizes{600, 1, 6, 24, 3}, Sizes{33, 1, 8, 24, 1}}) {
      for (const bool masked : {false, true}) {
        const Masks masks{masked, masked, masked, masked};
        const AttentionContext context = make_context(sizes, masks);
        const at::Tensor qkv = random_qkv(sizes, type);
        const at::Tensor d_result = random({sizes.s, 1, sizes.heads * sizes.head_size}, type, 2);
        std::vector<Computed> computed;
        std::vector<at::Tensor> decoded;
        for (int threads = 1; threads <= 4; ++threads) {
          at::set_num_threads(threads);
          computed.push_back(compute(qkv, d_result, context, sizes.of()));
          if (!masked) decoded.push_back(through_cache(qkv, context, sizes, {sizes.s - 9, 1, 8}));
        }
        for (int threads = 2; threads <= 4; ++threads) {
          const std::string what = concat(threads, " threads, ", describe(sizes, masks, type));
          EXPECT_TRUE(at::equal(computed[threads - 1].result, computed[0].result)) << what;
          EXPECT_TRUE(at::equal(computed[threads - 1].d_qkv, computed[0].d_qkv)) << what;
        }
        for (size_t i = 1; i < decoded.size(); ++i)
          EXPECT_TRUE(at::equal(decoded[i], decoded[0])) << i + 1 << " threads";
      }
    }
  }
  at::set_num_threads(threads_before);
}

TEST(AttentionGroups, ArgumentsThatDoNotFitAreABug) {
  const at::Tensor qkv = at::zeros({2, 1, Heads{4, 2}.columns(8)});  // 64 columns
  EXPECT_NO_THROW(attention(qkv, {}, {4, 2}, 0));
  EXPECT_THROW(attention(qkv, {}, {4, 3}, 0), InternalError);
  EXPECT_THROW(attention(qkv, {}, {4, 0}, 0), InternalError);
  EXPECT_THROW(attention(qkv, {}, {6, 3}, 0), InternalError);  // 64 columns are not 12 heads
  AttentionContext context;
  KeyValueCache cache;  // of heads, not of groups
  cache.capacity = 4;
  cache.lengths = {0};
  cache.layers = {{at::empty({1, 4, 4, 8}), at::empty({1, 4, 4, 8}), {}}};
  context.cache = &cache;
  EXPECT_THROW(attention(qkv, context, {4, 2}, 0), InternalError);
}

}  // namespace attention_groups_test
}  // namespace espalier::kernels
