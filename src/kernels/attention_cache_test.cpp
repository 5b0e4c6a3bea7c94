// Generation with a cache whose rows have lengths of their own.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/attention_reference_test.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace attention_cache_test {

using namespace attention_reference;

// How many new positions each row has, pass after pass.
using Passes = std::vector<std::vector<int64_t>>;

// A tile of queries and one at a time, rows that wait, rows that are far ahead of others.
const Passes kPasses = {{40, 3, 17}, {1, 1, 1}, {0, 70, 9}, {1, 1, 0}, {7, 2, 8}, {30, 0, 70}, {1, 1, 1}};

// Feeds the rows at their own pace, padded after the new positions of each. The results of each row one after another,
// [positions of the row, columns].
std::vector<at::Tensor> at_own_pace(const at::Tensor& qkv, AttentionContext context, const Sizes& sizes,
                                    const Passes& passes) {
  KeyValueCache cache = empty_cache(qkv, sizes, 70);  // for the padding after a row
  const at::Tensor first_key = context.first_key, last_key = context.last_key;
  context.cache = &cache;
  std::vector<at::Tensor> results(sizes.b, qkv.new_empty({0, sizes.heads * sizes.head_size}));
  for (const std::vector<int64_t>& news : passes) {
    const int64_t longest = *std::max_element(news.begin(), news.end());
    at::Tensor piece = qkv.new_full({longest, sizes.b, qkv.size(2)}, 1000);  // the padding
    const auto cut = [&](const at::Tensor& keys) {
      const auto key = keys.accessor<int32_t, 2>();
      return keys_by(sizes.b, longest, [&](int64_t row, int64_t query) {
        return query < news[row] ? key[row][cache.lengths[row] + query] : 0;
      });
    };
    if (first_key.defined()) context.first_key = cut(first_key);
    if (last_key.defined()) context.last_key = cut(last_key);
    for (int64_t row = 0; row < sizes.b; ++row)
      piece.narrow(0, 0, news[row]).select(1, row).copy_(qkv.narrow(0, cache.lengths[row], news[row]).select(1, row));
    const at::Tensor found = attention(piece, context, sizes.of(), kLayer);
    cache.add_to_lengths(longest);
    for (int64_t row = 0; row < sizes.b; ++row) {
      cache.lengths[row] -= longest - news[row];
      results[row] = at::cat({results[row], found.narrow(0, 0, news[row]).select(1, row)});
    }
  }
  return results;
}

TEST(AttentionCache, RowsAtTheirOwnPaceGiveTheRowsOfTheWhole) {
  for (const Sizes& sizes : {Sizes{130, 3, 2, 24}, Sizes{130, 3, 4, 16, 2}}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const Masks& masks :
           {Masks{}, Masks{.documents = true, .alibi = true}, Masks{.documents = true, .window = true},
            Masks{.relative = true, .scaled = true}, Masks{.window = true, .alibi = true, .relative = true}}) {
        const AttentionContext context = make_context(sizes, masks);
        const at::Tensor qkv = random_qkv(sizes, type);
        const Expected wanted = expected(qkv, at::zeros({sizes.s, sizes.b, sizes.heads * sizes.head_size}), sizes,
                                         context, rounding_of(type));
        for (const CpuIsa isa : reference::instruction_sets()) {
          const ForceCpuIsa force(isa);
          const std::vector<at::Tensor> found = at_own_pace(qkv, context, sizes, kPasses);
          for (int64_t row = 0; row < sizes.b; ++row) {
            const int64_t length = found[row].size(0);
            EXPECT_GE(length, 70);
            expect_within(found[row], wanted.result.select(1, row).narrow(0, 0, length),
                          wanted.result_bound.select(1, row).narrow(0, 0, length),
                          concat("row ", row, " ", describe(sizes, masks, type), " on ", cpu_isa_name(isa)));
          }
        }
      }
    }
  }
}

// A serving engine may put any sequences together: none learns of the others.
TEST(AttentionCache, ARowHasTheBitsThatItHasAlone) {
  const Sizes sizes{130, 3, 4, 24, 2};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const AttentionContext context = make_context(sizes, {.alibi = true, .relative = true});
    const at::Tensor qkv = random_qkv(sizes, type);
    for (const CpuIsa isa : reference::instruction_sets()) {
      const ForceCpuIsa force(isa);
      // The same number of queries in every pass: a few of them have a kernel of their own.
      const std::vector<at::Tensor> together = at_own_pace(qkv, context, sizes, {{40, 12, 23}, {8, 5, 1}, {9, 9, 9}});
      for (int64_t row = 0; row < sizes.b; ++row) {
        const Passes own = {{std::vector<int64_t>{40, 12, 23}[row]}, {std::vector<int64_t>{8, 5, 1}[row]}, {9}};
        const Sizes one{sizes.s, 1, sizes.heads, sizes.head_size, sizes.groups};
        const at::Tensor alone = at_own_pace(qkv.narrow(1, row, 1).contiguous(), context, one, own)[0];
        EXPECT_TRUE(at::equal(together[row], alone)) << row << " " << c10::toString(type) << " " << cpu_isa_name(isa);
      }
    }
  }
}

// A prefix that is seen as a whole by its own positions, then one position after the other.
TEST(AttentionCache, APrefixSeesItselfThroughTheCacheAsWell) {
  const Sizes sizes{90, 2, 2, 24};
  AttentionContext context;
  context.last_key =
      keys_by(2, sizes.s, [](int64_t row, int64_t query) { return std::max(query, int64_t{40 - 23 * row - 1}); });
  const at::Tensor qkv = random_qkv(sizes, at::kFloat);
  const Expected wanted = expected(qkv, at::zeros({sizes.s, 2, 48}), sizes, context, rounding_of(at::kFloat));
  for (const CpuIsa isa : reference::instruction_sets()) {
    const ForceCpuIsa force(isa);
    const std::vector<at::Tensor> found = at_own_pace(qkv, context, sizes, {{40, 17}, {1, 1}, {1, 8}, {20, 1}});
    for (int64_t row = 0; row < 2; ++row)
      expect_within(found[row], wanted.result.select(1, row).narrow(0, 0, found[row].size(0)),
                    wanted.result_bound.select(1, row).narrow(0, 0, found[row].size(0)),
                    concat("row ", row, " on ", cpu_isa_name(isa)));
  }
}

TEST(AttentionCache, LengthsThatDoNotFitAreABug) {
  const Sizes sizes{4, 2, 1, 8};
  const at::Tensor qkv = random_qkv(sizes, at::kFloat);
  AttentionContext context;
  KeyValueCache cache = empty_cache(qkv, sizes);  // of nine positions
  context.cache = &cache;
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{0, 6}, {5}, {0, 0, 0}, {-1, 0}}) {
    cache.lengths = lengths;
    EXPECT_THROW(attention(qkv, context, {1, 1}, kLayer), InternalError) << at::IntArrayRef(lengths);
  }
  cache.lengths = {5, 0};
  EXPECT_NO_THROW(attention(qkv, context, {1, 1}, kLayer));
}

}  // namespace attention_cache_test
}  // namespace espalier::kernels
