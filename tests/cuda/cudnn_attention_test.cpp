// Attention by cuDNN on the device under test against the CPU's kernels. Where the CPU stands in for a GPU, plain loops
// stand in for cuDNN (sdpa_on_host.h): what it is asked is then what is tested.
#include "tests/cuda/attention_cases.h"

namespace espalier::cuda_test {
namespace cudnn_attention_test {

constexpr at::ScalarType kShortTypes[] = {at::kBFloat16, at::kHalf};

// cuDNN rounds probabilities, scores' gradients and, of a group, each head's gradient of keys and values.
constexpr double kUnits = 12;

struct Shape {
  kernels::Heads heads;
  int64_t length, batch, head_size;
};
constexpr Shape kShapes[] = {{{1, 1}, 2, 1, 8},    {{3, 3}, 33, 2, 64}, {{3, 3}, 100, 1, 40}, {{4, 2}, 33, 2, 128},
                             {{6, 2}, 100, 3, 16}, {{3, 1}, 65, 2, 64}, {{3, 1}, 7, 1, 8}};

class DeviceCudnnAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = why_no_cudnn_attention()) GTEST_SKIP() << why;
  }
};

tensor::AttentionContext by_cudnn(bool causal, std::optional<double> scale = std::nullopt) {
  tensor::AttentionContext context;
  context.backend = spec::AttentionBackend::kCudnn;
  context.scale = scale;
  if (!causal) context.mask = tensor::AttentionContext::Mask::kFull;
  return context;
}

at::Tensor projection(const Shape& shape, at::ScalarType type, at::Device device) {
  return leaf(random({shape.length, shape.batch, shape.heads.columns(shape.head_size)}, type, 1), device);
}

Tensors attend(const Shape& shape, at::ScalarType type, const tensor::AttentionContext& context, at::Device device) {
  const at::Tensor qkv = projection(shape, type, device);
  const at::Tensor y = kernels::attention(qkv, context, shape.heads, 4);
  torch::autograd::backward({y}, {random(y.sizes(), type, 2).to(device)});
  return {y, qkv.grad()};
}

std::string name_of(const Shape& shape, bool causal) {
  return concat(causal ? "causal " : "full ", shape.heads.queries, " heads, ", shape.heads.groups, " of keys, ",
                shape.length, " x ", shape.batch, " by ", shape.head_size);
}

TEST_F(DeviceCudnnAttention, AgreesInBothMasks) {
  for (const auto type : kShortTypes)
    for (const bool causal : {true, false})
      for (const Shape& shape : kShapes)
        expect_agreement(
            name_of(shape, causal), type,
            [&](at::Device device) { return attend(shape, type, by_cudnn(causal), device); }, kUnits);
}

TEST_F(DeviceCudnnAttention, TheScaleIsTheCallers) {
  expect_agreement(
      "scale", at::kBFloat16,
      [&](at::Device device) {
        return attend({{4, 2}, 33, 2, 16}, at::kBFloat16, by_cudnn(true, 0.4), device);
      },
      kUnits);
}

TEST_F(DeviceCudnnAttention, WithoutAGraphItIsTheSameResult) {
  const Shape shape{{4, 2}, 33, 2, 64};
  const UseDevice use;
  const at::Tensor with = attend(shape, at::kBFloat16, by_cudnn(true), device_under_test())[0];
  const at::Tensor qkv = projection(shape, at::kBFloat16, device_under_test()).detach();
  const at::Tensor without = kernels::attention(qkv, by_cudnn(true), shape.heads, 4);
  EXPECT_TRUE(with.cpu().equal(without.cpu()));
}

TEST_F(DeviceCudnnAttention, BetweenTwoSequencesItAgrees) {
  for (const auto type : kShortTypes)
    expect_agreement(
        "33 queries, 70 keys", type,
        [&](at::Device device) -> Tensors {
          const kernels::Heads heads{4, 2};
          const at::Tensor query = leaf(random({33, 2, heads.query_columns(16)}, type, 1), device);
          const at::Tensor key_value = leaf(random({70, 2, heads.key_value_columns(16)}, type, 2), device);
          const at::Tensor y = kernels::cross_attention(query, key_value, by_cudnn(false), heads, 4);
          torch::autograd::backward({y}, {random(y.sizes(), type, 3).to(device)});
          return {y, query.grad(), key_value.grad()};
        },
        kUnits);
}

TEST_F(DeviceCudnnAttention, TheSameCallHasTheSameBits) {
  const UseDevice use;
  // Sums of many blocks, which atomic additions would take in any order.
  const int64_t length = device_under_test().is_cuda() ? 2048 : 70;
  for (const Shape& shape : {Shape{{12, 12}, length, 2, 64}, Shape{{8, 2}, length, 2, 128}}) {
    const Tensors once = attend(shape, at::kBFloat16, by_cudnn(true), device_under_test());
    for (int repeat = 0; repeat < 3; ++repeat) {
      const Tensors again = attend(shape, at::kBFloat16, by_cudnn(true), device_under_test());
      for (size_t i = 0; i < once.size(); ++i)
        EXPECT_TRUE(once[i].cpu().equal(again[i].cpu())) << name_of(shape, true) << " result " << i;
    }
  }
}

// The configuration refuses such runs; one that came here all the same must not compute something else.
TEST_F(DeviceCudnnAttention, WhatItLacksIsABug) {
  const UseDevice use;
  const Shape shape{{2, 2}, 33, 1, 16};
  const auto refuses = [&](const Shape& of, at::ScalarType type, const auto& change) {
    tensor::AttentionContext context = by_cudnn(true);
    change(context);
    EXPECT_THROW(attend(of, type, context, device_under_test()), InternalError);
  };
  const at::TensorOptions there = at::TensorOptions().device(device_under_test());
  const auto nothing = [](tensor::AttentionContext&) {};
  refuses(shape, at::kFloat, nothing);
  refuses({{2, 2}, 33, 1, 12}, at::kBFloat16, nothing);
  refuses({{2, 2}, 33, 1, 136}, at::kBFloat16, nothing);
  refuses(shape, at::kBFloat16, [](auto& context) { context.window = 5; });
  refuses(shape, at::kBFloat16, [](auto& context) { context.soft_cap = 5; });
  refuses(shape, at::kBFloat16, [&](auto& context) { context.alibi_slopes = kernels::alibi_slopes(2).to(there); });
  refuses(shape, at::kBFloat16, [&](auto& context) { context.first_key = at::zeros({1, 33}, there.dtype(at::kInt)); });
  refuses(shape, at::kBFloat16, [&](auto& context) { context.last_key = at::zeros({1, 33}, there.dtype(at::kInt)); });
  refuses(shape, at::kBFloat16, [&](auto& context) { context.max_logits = at::zeros({2}, there.dtype(at::kFloat)); });
  refuses(shape, at::kBFloat16, [](auto& context) {
    context.dropout = 0.1;
    context.sample_numbers = {3};
  });
}

}  // namespace cudnn_attention_test
}  // namespace espalier::cuda_test
