// Attention of some of the heads, as a tensor-parallel rank computes it, against attention of all of them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace attention_shards_test {

using reference::random;
using tensor::AttentionContext;

constexpr int64_t kHeads = 6, kHeadSize = 24, kLength = 67, kSamples = 2;

// Every mask at once: documents of 20 tokens, a window, slopes, dropout.
AttentionContext whole_context() {
  AttentionContext context;
  const at::Tensor starts = at::arange(kLength, at::kInt).floor_divide(20).mul(20).to(at::kInt);
  context.first_key = starts.repeat({kSamples, 1}).contiguous();
  context.window = 13;
  context.alibi_slopes = alibi_slopes(kHeads);
  context.dropout = 0.3;
  context.seed = 1234;
  context.sample_numbers = {5, (int64_t{3} << 32) + 7};
  return context;
}

struct Computed {
  at::Tensor result, d_qkv;
};

// `heads` heads from `first_head` on; d_result of the same heads.
Computed compute(const at::Tensor& qkv, const at::Tensor& d_result, int64_t first_head, int64_t heads) {
  AttentionContext context = whole_context();
  context.first_head = first_head;
  context.alibi_slopes = context.alibi_slopes.narrow(0, first_head, heads).contiguous();
  const at::Tensor part =
      qkv.narrow(2, first_head * 3 * kHeadSize, heads * 3 * kHeadSize).clone().contiguous().requires_grad_(true);
  const at::Tensor result = attention(part, context, {heads, heads}, /*layer=*/3);
  const at::Tensor upstream = d_result.narrow(2, first_head * kHeadSize, heads * kHeadSize);
  return {result.detach(), torch::autograd::grad({result}, {part}, {upstream})[0]};
}

TEST(AttentionShards, HeadsOfTheShardsPutTogetherEqualTheWholeToTheBit) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor qkv = random({kLength, kSamples, kHeads * 3 * kHeadSize}, type, 1);
    const at::Tensor d_result = random({kLength, kSamples, kHeads * kHeadSize}, type, 2);
    for (const CpuIsa isa : reference::instruction_sets()) {
      const ForceCpuIsa force(isa);
      const Computed whole = compute(qkv, d_result, 0, kHeads);
      for (const int64_t heads : {1, 2, 3}) {
        std::vector<at::Tensor> results, d_qkvs;
        for (int64_t first_head = 0; first_head < kHeads; first_head += heads) {
          const Computed shard = compute(qkv, d_result, first_head, heads);
          results.push_back(shard.result);
          d_qkvs.push_back(shard.d_qkv);
        }
        const std::string what = concat(heads, " heads of ", c10::toString(type), " on ", cpu_isa_name(isa));
        EXPECT_TRUE(at::equal(at::cat(results, 2), whole.result)) << what;
        EXPECT_TRUE(at::equal(at::cat(d_qkvs, 2), whole.d_qkv)) << what;
      }
    }
  }
}

// With fewer heads than threads, or heads left over, threads share a head tile by tile; one thread never does.
TEST(AttentionShards, ThreadsThatShareAHeadChangeNoBit) {
  const int threads_before = at::get_num_threads();
  constexpr int64_t kLongLength = 700;  // the last tile is not full
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t heads : {1, 3}) {
      for (const bool masked : {false, true}) {
        AttentionContext context;
        if (masked) {
          context.first_key = at::arange(kLongLength, at::kInt).floor_divide(300).mul(300).to(at::kInt).view({1, -1});
          context.window = 170;
          context.alibi_slopes = alibi_slopes(heads);
          context.dropout = 0.3;
          context.sample_numbers = {5};
        }
        at::Tensor qkv = random({kLongLength, 1, heads * 3 * kHeadSize}, type, 1).requires_grad_(true);
        const at::Tensor d_result = random({kLongLength, 1, heads * kHeadSize}, type, 2);
        std::vector<at::Tensor> results, d_qkvs;
        for (int threads = 1; threads <= 4; ++threads) {
          at::set_num_threads(threads);
          const at::Tensor result = attention(qkv, context, {heads, heads}, /*layer=*/3);
          results.push_back(result.detach());
          d_qkvs.push_back(torch::autograd::grad({result}, {qkv}, {d_result})[0]);
        }
        for (int threads = 2; threads <= 4; ++threads) {
          const std::string what = concat(threads, " threads, ", heads, " heads of ", c10::toString(type),
                                          masked ? ", every mask" : ", causal");
          EXPECT_TRUE(at::equal(results[threads - 1], results[0])) << what;
          EXPECT_TRUE(at::equal(d_qkvs[threads - 1], d_qkvs[0])) << what;
        }
      }
    }
  }
  at::set_num_threads(threads_before);
}

TEST(AttentionShards, HeadsBeyondThe16BitsOfTheCounterAreABug) {
  const at::Tensor qkv = at::zeros({2, 1, 2 * 3 * 8});
  AttentionContext context;
  context.first_head = 65534;
  EXPECT_NO_THROW(attention(qkv, context, {2, 2}, 0));
  context.first_head = 65535;
  EXPECT_THROW(attention(qkv, context, {2, 2}, 0), InternalError);
  context.first_head = -1;
  EXPECT_THROW(attention(qkv, context, {2, 2}, 0), InternalError);
}

}  // namespace attention_shards_test
}  // namespace espalier::kernels
