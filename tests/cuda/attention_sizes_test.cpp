// As heads_test.cpp: attention of the types, sizes of heads and lengths that tensor cores have tiles for, and some that
// fill no tile.
#include "tests/cuda/attention_cases.h"

namespace espalier::cuda_test {
namespace attention_sizes_test {

constexpr at::ScalarType kHalves[] = {at::kBFloat16, at::kHalf};
constexpr int64_t kLengths[] = {1, 7, 33, 64, 65, 129, 200};

// Unless all cases are taken, each size of heads has one of the two lengths of more than two tiles.
TEST(DeviceAttentionSizes, EverySizeOfHeadsAgreesAtEveryLength) {
  size_t number = 0;
  for (const int64_t head_size : {8, 16, 40, 64, 80, 128, 136, 256})
    for (const int64_t s : kLengths) {
      const auto type = kHalves[number % 2];
      const Mask& mask = kMasks[number++ % std::size(kMasks)];
      const bool is_even = (number - 1) / std::size(kLengths) % 2 == 0;
      if (s == (is_even ? 200 : 129) && !takes_all_cases()) continue;
      expect_agreement(
          std::string(mask.name) + ", heads of " + std::to_string(head_size), type,
          [&](at::Device device) {
            return attend(type, mask, {1, 1}, s, head_size, device);
          },
          units(type));
    }
}

// Unless all cases are taken, each mask in one kind of tile and one type, by turns: of each two masks that differ in
// "everything", one in each kind of tile.
TEST(DeviceAttentionSizes, EveryMaskAgreesInEveryTile) {
  size_t number = 0;
  for (const Mask& mask : kMasks)
    for (const int64_t head_size : {64, 128}) {
      const size_t number_of_mask = number / 2;
      auto type = kHalves[number++ % 2];
      if (!takes_all_cases()) {
        if ((head_size == 128) != ((number_of_mask + number_of_mask / 2) % 2 == 1)) continue;
        type = kHalves[number_of_mask / 2 % 2];
      }
      expect_agreement(
          std::string(mask.name) + ", heads of " + std::to_string(head_size), type,
          [&](at::Device device) {
            return attend(type, mask, {1, 1}, 135, head_size, device);
          },
          units(type));
    }
}

TEST(DeviceAttentionSizes, PlainCausalAgreesInEveryTypeWhereHeadsShareKeys) {
  size_t number = 0;
  for (const auto type : kHalves)
    for (const kernels::Heads heads : kHeads)
      for (const bool dropout : {false, true}) {
        // Unless all cases are taken, one type without dropout and the other with it, by turns.
        const size_t turn = number++;
        if ((turn + turn / 2) % 2 == 1 && !takes_all_cases()) continue;
        expect_agreement(
            "grouped attention", type,
            [&](at::Device device) { return attend(type, kMasks[dropout ? 4 : 0], heads, 140, 16, device); },
            units(type));
      }
}

TEST(DeviceAttentionSizes, LargestLogitsAgree) {
  size_t number = 0;
  for (const auto type : kHalves)
    for (const Mask& mask : kMasks) {
      // There are an odd number of masks: unless all cases are taken, each has one of the types.
      static_assert(std::size(kMasks) % 2 == 1);
      if (number++ % 2 == 1 && !takes_all_cases()) continue;
      expect_agreement(
          mask.name, type,
          [&](at::Device device) -> Tensors {
            tensor::AttentionContext context = context_of(mask, {4, 2}, 70, device);
            context.max_logits = at::full({4}, -INFINITY, at::TensorOptions().dtype(at::kFloat).device(device));
            const at::Tensor qkv = random({70, 2, kernels::Heads{4, 2}.columns(8)}, type, 1);
            kernels::attention(qkv.to(device), context, {4, 2}, 4);
            return {context.max_logits};
          },
          1);
    }
}

// Whole tiles of NaN that no query sees, of keys and of queries that see nothing.
TEST(DeviceAttentionSizes, DoesNotReadWhatABlockCannotSee) {
  for (const int64_t head_size : {16, 72})
    expect_agreement(
        "padding of NaN", at::kBFloat16,
        [&](at::Device device) { return attend_amid_nan(at::kBFloat16, head_size, 300, 64, 192, device); },
        units(at::kBFloat16));
}

TEST(DeviceAttentionSizes, OfAnotherSequenceAgrees) {
  for (const auto type : kHalves)
    for (const auto& [s, sk] : {std::pair<int64_t, int64_t>{1, 70}, {45, 1}, {70, 150}, {150, 70}})
      for (const Range range : {Range::kFull, Range::kPadding})
        for (const bool dropout : {false, true}) {
          if (dropout && sk == 1) continue;  // of one key, queries' gradients are zero but for the result's rounding
          // Unless all cases are taken, in the types by turns: each with both ranges, with and without dropout.
          const bool is_turn = (type == kHalves[0]) == (dropout == (range == Range::kPadding));
          if (!is_turn && !takes_all_cases()) continue;
          expect_agreement(
              "cross-attention", type,
              [&, s = s, sk = sk](at::Device device) -> Tensors {
                const Tensors all = attend_another(type, range, dropout, s, sk, 24, device);
                if (sk > 1) return all;
                // The difference of two sums that are equal but for their order: 24 products below 16, in fp32, by a
                // key below 4.
                EXPECT_LE(all[1].abs().max().to(at::kFloat).item<float>(), 24 * 16 * 4 * 0x1p-24);
                return {all[0], all[2]};
              },
              units(type));
        }
}

TEST(DeviceAttentionSizes, AgreesBehindACache) {
  for (const auto type : kHalves)
    expect_agreement(
        "cached attention", type,
        [&](at::Device device) -> Tensors {
          const kernels::Heads heads{4, 2};
          constexpr int64_t kCapacity = 150;
          tensor::KeyValueCache cache;
          const auto options = at::TensorOptions().device(device).dtype(type);
          cache.layers.push_back(
              {at::zeros({2, 2, kCapacity, 16}, options), at::zeros({2, 2, kCapacity, 16}, options), {}});
          cache.capacity = kCapacity;
          cache.lengths = {0, 0};
          tensor::AttentionContext context;
          context.cache = &cache;
          const auto next = [&](int64_t positions, uint64_t seed) {
            return kernels::attention(random({positions, 2, heads.columns(16)}, type, seed).to(device), context, heads,
                                      0);
          };
          const at::Tensor first = next(134, 1);
          cache.lengths = {134, 5};  // of the second row, the rest was padding
          const at::Tensor second = next(2, 2);
          cache.lengths = {136, 7};
          return {first, second, next(9, 3)};
        },
        units(type));
}

// The probabilities' sum over keys of ones is what is kept of them: which are dropped shows in each result.
TEST(DeviceAttentionSizes, TheVerySameElementsAreDropped) {
  constexpr int64_t kLength = 150, kHeadSize = 160;
  for (const auto type : kHalves)
    expect_agreement(
        "dropped elements", type,
        [&](at::Device device) -> Tensors {
          // All queries are zero, so the probabilities of those a query sees are the same. Value i is one at feature i.
          at::Tensor qkv = at::zeros({kLength, 2, 3 * kHeadSize}, type);
          for (int64_t i = 0; i < kLength; ++i) qkv.narrow(0, i, 1).narrow(2, 2 * kHeadSize + i, 1).fill_(1);
          tensor::AttentionContext context = context_of(kMasks[4], {1, 1}, kLength, device);
          const at::Tensor x = leaf(qkv, device);
          const at::Tensor y = kernels::attention(x, context, {1, 1}, 4);
          torch::autograd::backward({y}, {random(y.sizes(), type, 3).to(device)});
          return {(y != 0).to(at::kFloat), y, x.grad()};
        },
        units(type));
}

}  // namespace attention_sizes_test
}  // namespace espalier::cuda_test
