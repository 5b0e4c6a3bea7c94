// What queries see in the tests of attention, and attention as these tests call it.
#pragma once

#include "kernels/attention.h"
#include "tests/cuda/agreement.h"

namespace espalier::cuda_test {

inline constexpr kernels::Heads kHeads[] = {{3, 3}, {4, 2}, {3, 1}};

enum class Range { kCausal, kFull, kPrefix, kPadding };

struct Mask {
  const char* name;
  bool alibi, documents, dropout;
  int64_t window;
  Range range = Range::kCausal;
  bool relative = false, scaled = false;  // a bias by distance, a scale of the caller's
  bool capped = false;
};
inline constexpr Mask kMasks[] = {{"causal", false, false, false, 0},
                                  {"alibi", true, false, false, 0},
                                  {"documents", false, true, false, 0},
                                  {"window", false, false, false, 11},
                                  {"dropout", false, false, true, 0},
                                  {"everything", true, true, true, 20},
                                  {"full", false, false, false, 0, Range::kFull},
                                  {"full, everything", true, true, true, 20, Range::kFull},
                                  {"prefix", false, false, false, 0, Range::kPrefix},
                                  {"prefix, everything", true, false, true, 20, Range::kPrefix},
                                  {"padding", false, false, false, 0, Range::kPadding},
                                  {"padding, everything", true, false, true, 20, Range::kPadding},
                                  {"capped", false, false, true, 0, Range::kCausal, false, true, true},
                                  {"capped, everything", true, true, true, 20, Range::kFull, true, true, true},
                                  {"relative", false, false, false, 0, Range::kCausal, true},
                                  {"relative, full", false, false, false, 0, Range::kFull, true, true},
                                  {"relative, everything", true, true, true, 20, Range::kCausal, true, true},
                                  {"relative, full, everything", true, true, true, 20, Range::kFull, true, true},
                                  {"relative, padding", false, false, true, 0, Range::kPadding, true, true}};

// Of two rows of s queries that see some of sk keys. Padding: row 0 has it before and after, in row 1 is nothing else;
// it sees nothing.
inline void set_range(tensor::AttentionContext& context, Range range, int64_t s, int64_t sk, at::Device device) {
  const at::Tensor queries = at::arange(s, at::kInt);
  const auto rows = [&](const at::Tensor& first, const at::Tensor& second) {
    return at::stack({first, second}).to(at::kInt).contiguous().to(device);
  };
  if (range == Range::kFull) context.mask = tensor::AttentionContext::Mask::kFull;
  if (range == Range::kPrefix) context.last_key = rows(queries.clamp_min(sk / 2), queries);
  if (range != Range::kPadding) return;
  const at::Tensor seeing = ((queries >= 2) & (queries < s - s / 3)).to(at::kInt);
  context.first_key = rows(2 * seeing, 0 * seeing);
  context.last_key = rows((sk - sk / 3) * seeing - 1, 0 * seeing - 1);
}

inline tensor::AttentionContext context_of(const Mask& mask, kernels::Heads heads, int64_t s, at::Device device) {
  tensor::AttentionContext context;
  context.window = mask.window;
  set_range(context, mask.range, s, s, device);
  if (mask.scaled) context.scale = 0.4;
  if (mask.capped) context.soft_cap = 0.9;
  if (mask.relative) context.relative_bias = leaf(random({heads.queries, 2 * (s + 40) - 1}, at::kFloat, 3), device);
  if (mask.alibi) context.alibi_slopes = kernels::alibi_slopes(heads.queries).to(device);
  if (mask.documents) {
    const at::Tensor starts = at::arange(s, at::kInt).div(10, "floor").to(at::kInt) * 10;
    context.first_key = at::stack({starts, at::zeros_like(starts)}).contiguous().to(device);
    if (mask.range == Range::kFull) context.last_key = context.first_key + 9;  // of the last one: past the end
  }
  if (mask.dropout) {
    context.dropout = 0.2;
    context.seed = 7;
    context.sample_numbers = {3, int64_t{5} << 32};
    context.first_head = 2;
  }
  return context;
}

inline Tensors attend(at::ScalarType type, const Mask& mask, kernels::Heads heads, int64_t s, int64_t head_size,
                      at::Device device) {
  const at::Tensor qkv = leaf(random({s, 2, heads.columns(head_size)}, type, 1), device);
  const tensor::AttentionContext context = context_of(mask, heads, s, device);
  const at::Tensor y = kernels::attention(qkv, context, heads, 4);
  torch::autograd::backward({y}, {random(y.sizes(), type, 2).to(device)});
  if (!mask.relative) return {y, qkv.grad()};
  return {y, qkv.grad(), context.relative_bias.grad()};
}

// Queries of one sequence over sk keys of another: the result, and the gradients of queries and of keys and values.
inline Tensors attend_another(at::ScalarType type, Range range, bool dropout, int64_t s, int64_t sk, int64_t head_size,
                              at::Device device) {
  const kernels::Heads heads{4, 2};
  const Mask mask{"", false, false, dropout, 0};
  tensor::AttentionContext context = context_of(mask, heads, s, device);
  context.mask = tensor::AttentionContext::Mask::kFull;
  set_range(context, range, s, sk, device);
  const at::Tensor query = leaf(random({s, 2, heads.query_columns(head_size)}, type, 1), device);
  const at::Tensor key_value = leaf(random({sk, 2, heads.key_value_columns(head_size)}, type, 2), device);
  const at::Tensor y = kernels::cross_attention(query, key_value, context, heads, 4);
  torch::autograd::backward({y}, {random(y.sizes(), type, 3).to(device)});
  return {y, query.grad(), key_value.grad()};
}

// Positions begin .. end - 1 see one another; all others are NaN, see nothing and are not seen.
inline Tensors attend_amid_nan(at::ScalarType type, int64_t head_size, int64_t length, int64_t begin, int64_t end,
                               at::Device device) {
  const at::Tensor values = random({length, 1, kernels::Heads{4, 2}.columns(head_size)}, type, 1);
  const at::Tensor upstream = random({length, 1, 4 * head_size}, type, 2);
  for (const at::Tensor& x : {values, upstream})
    for (const at::Tensor& part : {x.narrow(0, 0, begin), x.narrow(0, end, length - end)}) part.fill_(NAN);
  tensor::AttentionContext context;
  const at::Tensor queries = at::arange(length, at::kInt).view({1, length});
  const at::Tensor sees = ((queries >= begin) & (queries < end)).to(at::kInt);
  context.first_key = (sees * begin).contiguous().to(device);
  context.last_key = (sees * end - 1).contiguous().to(device);
  const at::Tensor qkv = leaf(values, device);
  const at::Tensor y = kernels::attention(qkv, context, {4, 2}, 4);
  torch::autograd::backward({y}, {upstream.to(device)});
  return {y, qkv.grad()};
}

// bf16: the CPU rounds probabilities and their gradients before its products, as tensor cores do; other kernels do not.
inline double units(at::ScalarType type) { return type == at::kFloat ? 64 : 6; }

}  // namespace espalier::cuda_test
