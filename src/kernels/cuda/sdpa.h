// Scaled dot-product attention as cuDNN is asked for it, on the current device and stream.
//
// result = softmax(scale * query key^T, causal or full) value, in bf16 or fp16, sums in fp32. The same call gives the
// same bits: the backward pass is cuDNN's deterministic one, which keeps 2 bytes for each pair of a query and a key of
// all heads while it runs, on GPUs before Blackwell at least. What cuDNN cannot do is a UserError with its reason.
//
// A plan is made for each shape, with its strides, when it is first asked for (about half a second), and stays.
// Plain header.
#pragma once

#include <cstdint>

#include "kernels/internal/attention_problem.h"

namespace espalier::cuda {

// Element (row of the batch, head, position, channel) is at data + row * batch_stride + head * head_stride +
// position * position_stride + channel, strides in elements.
struct SdpaOperand {
  void* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0, position_stride = 0;
};

struct Sdpa {
  kernels::AttentionType type = kernels::AttentionType::kBFloat16;
  int64_t batch = 0, query_heads = 0, key_heads = 0;  // query head h goes with key head h / (query_heads / key_heads)
  int64_t num_queries = 0, num_keys = 0, head_size = 0;
  bool causal = true;  // query n sees the keys 0 .. n
  float scale = 1;
  SdpaOperand query, key, value, result;
  // [batch, query_heads, num_queries], of the natural exponential function; null: not wanted.
  float* log_sum_exp = nullptr;
};

struct SdpaGradients {
  SdpaOperand result;             // in
  SdpaOperand query, key, value;  // out: written, not added to
};

// Why this build has none of it; nullptr: it has.
const char* why_no_sdpa();

void sdpa_forward(const Sdpa& sdpa);
void sdpa_backward(const Sdpa& sdpa, const SdpaGradients& gradients);

}  // namespace espalier::cuda
