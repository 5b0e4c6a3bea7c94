#include "kernels/attention.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/captured.h"
#include "kernels/internal/attention_problem.h"
#include "tensor/rng.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace {

using tensor::AttentionContext;
using tensor::KeyValueCache;

AttentionType attention_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return AttentionType::kFloat;
    case at::kBFloat16: return AttentionType::kBFloat16;
    case at::kHalf: return AttentionType::kHalf;
    default: ESPALIER_CHECK(false, "attention has no kernel for ", c10::toString(type)); return {};
  }
}

// The part `which` (0 query, 1 key, 2 value) of [s, b, heads * 3 * head_size].
AttentionOperand fused_operand(const at::Tensor& qkv, int64_t which, int64_t head_size) {
  AttentionOperand operand;
  operand.data = static_cast<char*>(qkv.data_ptr()) + which * head_size * qkv.element_size();
  operand.row_stride = qkv.size(2);
  operand.head_stride = 3 * head_size;
  operand.position_stride = qkv.size(1) * qkv.size(2);
  return operand;
}

// [s, b, heads * head_size].
AttentionOperand result_operand(const at::Tensor& result, int64_t head_size) {
  return {result.data_ptr(), result.size(2), head_size, result.size(1) * result.size(2)};
}

// [b, heads, capacity, head_size].
AttentionOperand cache_operand(const at::Tensor& cache) {
  return {cache.data_ptr(), cache.stride(0), cache.stride(1), cache.stride(2)};
}

void check_arguments(const at::Tensor& qkv, const AttentionContext& context, int64_t num_heads) {
  ESPALIER_CHECK(qkv.dim() == 3 && qkv.is_contiguous(), "qkv must be [s, b, heads * 3 * head_size], contiguous");
  ESPALIER_CHECK(num_heads > 0 && qkv.size(2) % (3 * num_heads) == 0, "qkv has ", qkv.size(2), " columns for ",
                 num_heads, " heads");
  const at::Tensor& first_key = context.first_key;
  ESPALIER_CHECK(!first_key.defined() ||
                     (first_key.scalar_type() == at::kInt && first_key.is_contiguous() && first_key.dim() == 2 &&
                      first_key.size(0) == qkv.size(1) && first_key.size(1) == qkv.size(0)),
                 "first_key must be int32 [b, s]");
  const at::Tensor& slopes = context.alibi_slopes;
  ESPALIER_CHECK(!slopes.defined() ||
                     (slopes.scalar_type() == at::kFloat && slopes.is_contiguous() && slopes.numel() == num_heads),
                 "alibi_slopes must be float32 [heads]");
  ESPALIER_CHECK(context.window >= 0, "window = ", context.window);
  ESPALIER_CHECK(context.dropout >= 0 && context.dropout < 1, "dropout = ", context.dropout);
  ESPALIER_CHECK(context.dropout == 0 || static_cast<int64_t>(context.sample_numbers.size()) == qkv.size(1),
                 "dropout of ", qkv.size(1), " rows with ", context.sample_numbers.size(), " sample numbers");
  ESPALIER_CHECK(context.first_head >= 0 && context.first_head + num_heads <= 1 << 16, "heads from ",
                 context.first_head);
}

// The problem but for its result. `context` must outlive it.
AttentionProblem make_problem(const at::Tensor& qkv, const AttentionContext& context, int64_t num_heads,
                              int64_t layer) {
  AttentionProblem problem;
  problem.type = attention_type(qkv.scalar_type());
  problem.num_queries = qkv.size(0);
  problem.batch = qkv.size(1);
  problem.heads = num_heads;
  problem.head_size = qkv.size(2) / (3 * num_heads);
  problem.query = fused_operand(qkv, 0, problem.head_size);
  problem.key = fused_operand(qkv, 1, problem.head_size);
  problem.value = fused_operand(qkv, 2, problem.head_size);
  problem.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem.head_size)));
  problem.window = context.window;
  if (context.first_key.defined()) problem.first_key = context.first_key.const_data_ptr<int32_t>();
  if (context.alibi_slopes.defined()) problem.slopes = context.alibi_slopes.const_data_ptr<float>();
  if (context.dropout > 0) {
    problem.dropout = true;
    // word < probability * 2^32 for an integer word: word < the next integer.
    problem.drop_below = static_cast<uint32_t>(
        std::min(std::ceil(context.dropout * 0x1p32), static_cast<double>(std::numeric_limits<uint32_t>::max())));
    problem.keep_scale = static_cast<float>(1.0 / (1.0 - context.dropout));
    const std::string site = concat("dropout/layers.", layer, ".attention");
    problem.key_of_site = tensor::philox_key(context.seed, site.c_str());
    problem.sample_numbers = context.sample_numbers.data();
    problem.first_head = context.first_head;
  }
  return problem;
}

// What the backward pass needs beside tensors of activations.
struct KeptState {
  AttentionContext context;
  int64_t num_heads, layer;
};

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* graph, const at::Tensor& qkv,
                            const AttentionContext& context, int64_t num_heads, int64_t layer) {
    AttentionProblem problem = make_problem(qkv, context, num_heads, layer);
    const at::Tensor result = at::empty({qkv.size(0), qkv.size(1), qkv.size(2) / 3}, qkv.options());
    const at::Tensor log_sum_exp = at::empty({qkv.size(1), num_heads, qkv.size(0)}, qkv.options().dtype(at::kFloat));
    problem.result = result_operand(result, problem.head_size);
    problem.log_sum_exp = log_sum_exp.mutable_data_ptr<float>();
    attention_forward(problem);
    tensor::save_for_backward(graph, "attention", {{"qkv", qkv}, {"result", result}, {"log_sum_exp", log_sum_exp}});
    capture_state(graph, KeptState{context, num_heads, layer});
    return result;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* graph,
                                                 const torch::autograd::variable_list& upstream) {
    const torch::autograd::variable_list saved = graph->get_saved_variables();
    const at::Tensor &qkv = saved[0], &result = saved[1], &log_sum_exp = saved[2];
    const KeptState& state = captured_state<KeptState>(graph);
    AttentionProblem problem = make_problem(qkv, state.context, state.num_heads, state.layer);
    problem.result = result_operand(result, problem.head_size);
    problem.log_sum_exp = log_sum_exp.mutable_data_ptr<float>();

    const at::Tensor d_result = upstream[0].contiguous();
    const at::Tensor d_qkv = at::empty_like(qkv);
    AttentionGradients gradients;
    gradients.result = result_operand(d_result, problem.head_size);
    gradients.query = fused_operand(d_qkv, 0, problem.head_size);
    gradients.key = fused_operand(d_qkv, 1, problem.head_size);
    gradients.value = fused_operand(d_qkv, 2, problem.head_size);
    attention_backward(problem, gradients);
    return {d_qkv, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor forward_only(const at::Tensor& qkv, const AttentionContext& context, int64_t num_heads, int64_t layer) {
  AttentionProblem problem = make_problem(qkv, context, num_heads, layer);
  const at::Tensor result = at::empty({qkv.size(0), qkv.size(1), qkv.size(2) / 3}, qkv.options());
  problem.result = result_operand(result, problem.head_size);
  attention_forward(problem);
  return result;
}

// Copies the keys or values of the new positions behind those of the cache.
void append(const at::Tensor& cache, const at::Tensor& qkv, int64_t which, const AttentionProblem& problem,
            int64_t length) {
  const at::Tensor heads = qkv.view({problem.num_queries, problem.batch, problem.heads, 3, problem.head_size});
  cache.narrow(2, length, problem.num_queries).copy_(heads.select(3, which).permute({1, 2, 0, 3}));
}

at::Tensor cached_attention(const at::Tensor& qkv, const AttentionContext& context, int64_t num_heads, int64_t layer) {
  const at::NoGradGuard no_grad;
  KeyValueCache& cache = *context.cache;
  ESPALIER_CHECK(layer >= 0 && layer < static_cast<int64_t>(cache.layers.size()), "layer ", layer, " of a cache of ",
                 cache.layers.size());
  ESPALIER_CHECK(cache.length + qkv.size(0) <= cache.capacity, "a cache of ", cache.capacity, " positions holds ",
                 cache.length, ", ", qkv.size(0), " are new");
  AttentionProblem problem = make_problem(qkv, context, num_heads, layer);
  const KeyValueCache::Layer& entry = cache.layers[layer];
  for (const at::Tensor& part : {entry.keys, entry.values}) {
    ESPALIER_CHECK(part.sizes() == at::IntArrayRef({problem.batch, num_heads, cache.capacity, problem.head_size}) &&
                       part.stride(3) == 1 && part.scalar_type() == qkv.scalar_type(),
                   "the cache must be [b, heads, capacity, head_size] of the compute type");
  }
  append(entry.keys, qkv, 1, problem, cache.length);
  append(entry.values, qkv, 2, problem, cache.length);
  const at::Tensor result = at::empty({qkv.size(0), qkv.size(1), qkv.size(2) / 3}, qkv.options());
  problem.first_query = cache.length;
  problem.key = cache_operand(entry.keys);
  problem.value = cache_operand(entry.values);
  problem.result = result_operand(result, problem.head_size);
  if (problem.num_queries <= kFewQueries && !problem.dropout) {
    attention_few_queries(problem);
  } else {
    attention_forward(problem);
  }
  return result;
}

}  // namespace

at::Tensor attention(const at::Tensor& qkv, const AttentionContext& context, int64_t num_heads, int64_t layer) {
  check_arguments(qkv, context, num_heads);
  if (context.cache != nullptr) return cached_attention(qkv, context, num_heads, layer);
  if (!builds_graph(qkv)) return forward_only(qkv, context, num_heads, layer);
  return AttentionFunction::apply(qkv, context, num_heads, layer);
}

at::Tensor alibi_slopes(int64_t num_heads) {
  ESPALIER_CHECK(num_heads > 0, "slopes of ", num_heads, " heads");
  // Slope i of n = 2^m heads: r r^i in double, r = 2^(-8/n), in the order of operations of Megatron-DeepSpeed.
  const auto geometric = [](int64_t heads, int64_t i) {
    const double ratio = std::pow(2.0, -std::pow(2.0, -(std::log2(static_cast<double>(heads)) - 3.0)));
    return static_cast<float>(ratio * std::pow(ratio, static_cast<double>(i)));
  };
  int64_t power = 1;
  while (2 * power <= num_heads) power *= 2;
  const at::Tensor slopes = at::empty({num_heads}, at::kFloat);
  float* const slope = slopes.mutable_data_ptr<float>();
  for (int64_t head = 0; head < num_heads; ++head) {
    slope[head] = head < power ? geometric(power, head) : geometric(2 * power, 2 * (head - power));
  }
  return slopes;
}

}  // namespace espalier::kernels
