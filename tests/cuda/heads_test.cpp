// As ops_test.cpp: attention, what is done to its heads, RMS norms and activations.
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/qk_norm.h"
#include "kernels/rms_norm.h"
#include "kernels/rotary.h"
#include "tests/cuda/agreement.h"

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

constexpr kernels::Heads kHeads[] = {{3, 3}, {4, 2}, {3, 1}};

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

struct Mask {
  const char* name;
  bool alibi, documents, dropout;
  int64_t window;
};
constexpr Mask kMasks[] = {{"causal", false, false, false, 0},   {"alibi", true, false, false, 0},
                           {"documents", false, true, false, 0}, {"window", false, false, false, 11},
                           {"dropout", false, false, true, 0},   {"everything", true, true, true, 20}};

tensor::AttentionContext context_of(const Mask& mask, kernels::Heads heads, int64_t s, at::Device device) {
  tensor::AttentionContext context;
  context.window = mask.window;
  if (mask.alibi) context.alibi_slopes = kernels::alibi_slopes(heads.queries).to(device);
  if (mask.documents) {
    const at::Tensor starts = at::arange(s, at::kInt).div(10, "floor").to(at::kInt) * 10;
    context.first_key = at::stack({starts, at::zeros_like(starts)}).contiguous().to(device);
  }
  if (mask.dropout) {
    context.dropout = 0.2;
    context.seed = 7;
    context.sample_numbers = {3, int64_t{5} << 32};
    context.first_head = 2;
  }
  return context;
}

Tensors attend(at::ScalarType type, const Mask& mask, kernels::Heads heads, int64_t s, int64_t head_size,
               at::Device device) {
  const at::Tensor qkv = leaf(random({s, 2, heads.columns(head_size)}, type, 1), device);
  const at::Tensor y = kernels::attention(qkv, context_of(mask, heads, s, device), heads, 4);
  torch::autograd::backward({y}, {random(y.sizes(), type, 2).to(device)});
  return {y, qkv.grad()};
}

// bf16: the CPU rounds probabilities and their gradients before its products, the device does not.
double units(at::ScalarType type) { return type == at::kBFloat16 ? 6 : 64; }

TEST(DeviceAttention, AgreesUnderEveryMask) {
  for (const Mask& mask : kMasks)
    expect_agreement(
        mask.name, at::kFloat,
        [&](at::Device device) {
          return attend(at::kFloat, mask, {2, 2}, 45, 20, device);
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
        cache.layers.push_back({at::zeros({2, 2, 40, 16}, fp32), at::zeros({2, 2, 40, 16}, fp32)});
        cache.capacity = 40;
        tensor::AttentionContext context;
        context.cache = &cache;
        const at::Tensor first =
            kernels::attention(random({34, 2, heads.columns(16)}, at::kFloat, 1).to(device), context, heads, 0);
        cache.length = 34;
        const at::Tensor next =
            kernels::attention(random({2, 2, heads.columns(16)}, at::kFloat, 2).to(device), context, heads, 0);
        return {first, next};
      },
      units(at::kFloat));
}

}  // namespace heads_test
}  // namespace espalier::cuda_test
