// As ops_test.cpp: attention, what is done to its heads, RMS norms and activations.
#include "kernels/activation.h"
#include "kernels/qk_norm.h"
#include "kernels/rms_norm.h"
#include "kernels/rotary.h"
#include "tests/cuda/attention_cases.h"

namespace espalier::cuda_test {
namespace heads_test {

TEST(DeviceHeads, EveryActivationAgrees) {
  using spec::Activation;
  for (const auto type : kTypes)
    for (const bool with_bias : {false, true})
      for (int kind = 0; kind <= static_cast<int>(Activation::kLiglu); ++kind)
        expect_agreement(
            "activation " + std::to_string(kind), type,
            [&](at::Device device) -> Tensors {
              GradQueue queue;
              const auto activation = static_cast<Activation>(kind);
              const int64_t width = spec::is_gated(activation) ? 66 : 33;
              TestParam bias(random({width}, type, 1), device);
              const at::Tensor x = leaf(random({70, 1, width}, type, 2) * 3, device);
              const at::Tensor y = kernels::bias_activation(x, with_bias ? &bias : nullptr, activation, queue);
              torch::autograd::backward({y}, {random({70, 1, 33}, type, 3).to(device)});
              return {y, x.grad(), bias.grad};
            },
            16);
}

TEST(DeviceHeads, RmsNormAgrees) {
  for (const auto type : kTypes)
    for (const int64_t columns : {7, 33, 300})
      expect_agreement(
          "rms_norm", type,
          [&](at::Device device) -> Tensors {
            GradQueue queue;
            TestParam weight(random({columns}, type, 1), device);
            const at::Tensor x = leaf(random({70, 2, columns}, type, 2), device);
            const at::Tensor y = kernels::rms_norm(x, weight, 1e-6, queue);
            torch::autograd::backward({y}, {random({70, 2, columns}, type, 3).to(device)});
            return {y, x.grad(), weight.grad};
          },
          16);
}

TEST(DeviceHeads, QkNormAgrees) {
  for (const auto type : kTypes)
    for (const kernels::Heads heads : kHeads)
      expect_agreement(
          "qk_norm", type,
          [&](at::Device device) -> Tensors {
            GradQueue queue;
            TestParam query(random({33}, type, 1), device), key(random({33}, type, 2), device);
            const at::Tensor qkv = leaf(random({7, 2, heads.columns(33)}, type, 3), device);
            const at::Tensor y = kernels::qk_norm(qkv, query, key, heads, 1e-6, queue);
            torch::autograd::backward({y}, {random(y.sizes(), type, 4).to(device)});
            return {y, qkv.grad(), query.grad, key.grad};
          },
          16);
}

TEST(DeviceHeads, RotaryAgrees) {
  for (const auto type : kTypes)
    for (const bool interleaved : {false, true})
      expect_agreement("rotary", type, [&](at::Device device) -> Tensors {
        const kernels::Heads heads{4, 2};
        const at::Tensor angles = random({20, 5}, at::kFloat, 1);
        const kernels::RotaryTable table{angles.cos().to(device), angles.sin().to(device)};
        const at::Tensor positions = ((at::arange(14, at::kLong) * 5) % 20).view({2, 7}).to(device);
        const at::Tensor qkv = leaf(random({7, 2, heads.columns(13)}, type, 2), device);
        const at::Tensor y = kernels::rotary(qkv, table, positions, heads, 13, interleaved);
        torch::autograd::backward({y}, {random(y.sizes(), type, 3).to(device)});
        return {y, qkv.grad()};
      });
}

TEST(DeviceAttention, AgreesUnderEveryMask) {
  for (const Mask& mask : kMasks)
    expect_agreement(
        mask.name, at::kFloat,
        [&](at::Device device) {
          return attend(at::kFloat, mask, {2, 2}, 45, 20, device);
        },
        units(at::kFloat));
}

TEST(DeviceAttention, LargestLogitsAgree) {
  for (const Mask& mask : kMasks)
    expect_agreement(
        mask.name, at::kFloat,
        [&](at::Device device) -> Tensors {
          tensor::AttentionContext context = context_of(mask, {4, 2}, 33, device);
          context.max_logits = at::full({4}, -INFINITY, at::TensorOptions().dtype(at::kFloat).device(device));
          const at::Tensor qkv = random({33, 2, kernels::Heads{4, 2}.columns(5)}, at::kFloat, 1);
          kernels::attention(qkv.to(device), context, {4, 2}, 4);
          return {context.max_logits};
        },
        units(at::kFloat));
}

TEST(DeviceAttention, AgreesInEveryTypeAndSize) {
  for (const auto type : kTypes)
    for (const int64_t s : kSizes)
      for (const int64_t head_size : {5, 40, 100, 160})
        expect_agreement(
            "attention", type,
            [&](at::Device device) {
              return attend(type, kMasks[5], {1, 1}, s, head_size, device);
            },
            units(type));
}

// Each mask in each size. Unless all cases are taken, in the types by turns, and the longest sequences with fewer
// heads.
void expect_agreement_in_types_and_sizes(bool (*takes)(const Mask&), std::initializer_list<int64_t> sizes) {
  size_t number = 0;
  for (const Mask& mask : kMasks) {
    if (!takes(mask)) continue;
    for (const int64_t s : sizes) {
      const kernels::Heads heads = s > 33 && !takes_all_cases() ? kernels::Heads{2, 1} : kernels::Heads{4, 2};
      const size_t turn = number++ % std::size(kTypes);
      for (size_t i = 0; i < std::size(kTypes); ++i) {
        if (i != turn && !takes_all_cases()) continue;
        const auto type = kTypes[i];
        expect_agreement(
            mask.name, type, [&](at::Device device) { return attend(type, mask, heads, s, 20, device); }, units(type));
      }
    }
  }
}

TEST(DeviceAttention, ABiasByDistanceAgreesInEveryTypeAndSize) {
  expect_agreement_in_types_and_sizes([](const Mask& mask) { return mask.relative; },
                                      {7, 32, takes_all_cases() ? 100 : 70});
}

TEST(DeviceAttention, AgreesUnderEveryRangeInEveryTypeAndSize) {
  expect_agreement_in_types_and_sizes([](const Mask& mask) { return mask.range != Range::kCausal; }, {1, 33, 70});
}

// Whole tiles of NaN that no query sees, of keys and of queries that see nothing.
TEST(DeviceAttention, DoesNotReadWhatABlockCannotSee) {
  expect_agreement(
      "padding of NaN", at::kFloat,
      [&](at::Device device) { return attend_amid_nan(at::kFloat, 16, 200, 64, 128, device); }, units(at::kFloat));
}

// Unless all cases are taken, in the types by turns: each with both ranges, with and without dropout.
TEST(DeviceAttention, OfAnotherSequenceAgrees) {
  for (const auto type : kTypes)
    for (const int64_t s : {1, 7, 45})
      for (const int64_t sk : {1, 70})
        for (const Range range : {Range::kFull, Range::kPadding})
          for (const bool dropout : {false, true}) {
            const bool is_turn = (type == kTypes[0]) == (dropout == (range == Range::kPadding));
            if (!is_turn && !takes_all_cases()) continue;
            expect_agreement(
                "cross-attention", type,
                [&](at::Device device) { return attend_another(type, range, dropout, s, sk, 20, device); },
                units(type));
          }
}

TEST(DeviceAttention, AgreesWhereHeadsShareKeys) {
  for (const kernels::Heads heads : kHeads)
    expect_agreement(
        "grouped attention", at::kFloat,
        [&](at::Device device) { return attend(at::kFloat, kMasks[5], heads, 40, 16, device); }, units(at::kFloat));
}

TEST(DeviceAttention, AgreesBehindACache) {
  expect_agreement(
      "cached attention", at::kFloat,
      [&](at::Device device) -> Tensors {
        const kernels::Heads heads{4, 2};
        tensor::KeyValueCache cache;
        const auto fp32 = at::TensorOptions().device(device);
        cache.layers.push_back({at::zeros({2, 2, 40, 16}, fp32), at::zeros({2, 2, 40, 16}, fp32), {}});
        cache.capacity = 40;
        cache.lengths = {0, 0};
        tensor::AttentionContext context;
        context.cache = &cache;
        context.relative_bias = random({4, 2 * 40 - 1}, at::kFloat, 4).to(device);
        const at::Tensor first =
            kernels::attention(random({34, 2, heads.columns(16)}, at::kFloat, 1).to(device), context, heads, 0);
        cache.lengths = {34, 5};  // of the second row, the rest was padding
        const at::Tensor next =
            kernels::attention(random({2, 2, heads.columns(16)}, at::kFloat, 2).to(device), context, heads, 0);
        cache.lengths = {36, 7};
        const at::Tensor last =
            kernels::attention(random({3, 2, heads.columns(16)}, at::kFloat, 3).to(device), context, heads, 0);
        return {first, next, last};
      },
      units(at::kFloat));
}

}  // namespace heads_test
}  // namespace espalier::cuda_test
