#include "kernels/attention.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/captured.h"
#include "kernels/device_ops.h"
#include "kernels/internal/attention_problem.h"
#include "kernels/internal/drop_threshold.h"
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

int64_t head_size_of(const at::Tensor& qkv, Heads heads) { return qkv.size(2) / heads.columns(1); }

// From part `part` of every group (its query heads, its key, its value) of [s, b, heads.columns(head_size)] on.
AttentionOperand fused_operand(const at::Tensor& qkv, Heads heads, int64_t part, bool of_queries) {
  const int64_t head_size = head_size_of(qkv, heads);
  AttentionOperand operand;
  operand.data = static_cast<char*>(qkv.data_ptr()) + part * head_size * qkv.element_size();
  operand.row_stride = qkv.size(2);
  operand.group_stride = heads.parts_of_group() * head_size;
  operand.member_stride = of_queries ? head_size : 0;
  operand.position_stride = qkv.size(1) * qkv.size(2);
  return operand;
}
AttentionOperand queries_of(const at::Tensor& qkv, Heads heads) { return fused_operand(qkv, heads, 0, true); }
AttentionOperand keys_of(const at::Tensor& qkv, Heads heads) {
  return fused_operand(qkv, heads, heads.per_group(), false);
}
AttentionOperand values_of(const at::Tensor& qkv, Heads heads) {
  return fused_operand(qkv, heads, heads.per_group() + 1, false);
}

// [s, b, heads.queries * head_size].
AttentionOperand result_operand(const at::Tensor& result, Heads heads) {
  const int64_t head_size = result.size(2) / heads.queries;
  return {result.data_ptr(), result.size(2), heads.per_group() * head_size, head_size, result.size(1) * result.size(2)};
}
at::Tensor empty_result(const at::Tensor& qkv, Heads heads) {
  return at::empty({qkv.size(0), qkv.size(1), heads.queries * head_size_of(qkv, heads)}, qkv.options());
}

// [b, groups, capacity, head_size].
AttentionOperand cache_operand(const at::Tensor& cache) {
  return {cache.data_ptr(), cache.stride(0), cache.stride(1), 0, cache.stride(2)};
}

void check_arguments(const at::Tensor& qkv, const AttentionContext& context, Heads heads) {
  check_heads(heads);
  ESPALIER_CHECK(qkv.dim() == 3 && qkv.is_contiguous(), "qkv must be [s, b, columns of the heads], contiguous");
  ESPALIER_CHECK(qkv.size(2) % heads.columns(1) == 0, "qkv has ", qkv.size(2), " columns for ", heads.queries,
                 " heads in ", heads.groups, " groups");
  const at::Tensor& first_key = context.first_key;
  ESPALIER_CHECK(!first_key.defined() ||
                     (first_key.scalar_type() == at::kInt && first_key.is_contiguous() && first_key.dim() == 2 &&
                      first_key.size(0) == qkv.size(1) && first_key.size(1) == qkv.size(0)),
                 "first_key must be int32 [b, s]");
  const at::Tensor& slopes = context.alibi_slopes;
  ESPALIER_CHECK(!slopes.defined() ||
                     (slopes.scalar_type() == at::kFloat && slopes.is_contiguous() && slopes.numel() == heads.queries),
                 "alibi_slopes must be float32 [heads]");
  ESPALIER_CHECK(context.window >= 0, "window = ", context.window);
  ESPALIER_CHECK(context.dropout >= 0 && context.dropout < 1, "dropout = ", context.dropout);
  ESPALIER_CHECK(context.dropout == 0 || static_cast<int64_t>(context.sample_numbers.size()) == qkv.size(1),
                 "dropout of ", qkv.size(1), " rows with ", context.sample_numbers.size(), " sample numbers");
  ESPALIER_CHECK(context.first_head >= 0 && context.first_head + heads.queries <= 1 << 16, "heads from ",
                 context.first_head);
}

// The problem but for its result. `context` must outlive it.
AttentionProblem make_problem(const at::Tensor& qkv, const AttentionContext& context, Heads heads, int64_t layer) {
  AttentionProblem problem;
  problem.type = attention_type(qkv.scalar_type());
  problem.num_queries = qkv.size(0);
  problem.batch = qkv.size(1);
  problem.groups = heads.groups;
  problem.members = heads.per_group();
  problem.head_size = head_size_of(qkv, heads);
  problem.query = queries_of(qkv, heads);
  problem.key = keys_of(qkv, heads);
  problem.value = values_of(qkv, heads);
  problem.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem.head_size)));
  problem.window = context.window;
  if (context.first_key.defined()) problem.first_key = context.first_key.const_data_ptr<int32_t>();
  if (context.alibi_slopes.defined()) problem.slopes = context.alibi_slopes.const_data_ptr<float>();
  if (context.dropout > 0) {
    problem.dropout = true;
    problem.drop_below = drop_threshold(context.dropout);
    problem.keep_scale = static_cast<float>(1.0 / (1.0 - context.dropout));
    const std::string site = concat("dropout/layers.", layer, ".attention");
    problem.key_of_site = tensor::philox_key(context.seed, site.c_str());
    problem.sample_numbers = context.sample_numbers.data();
    problem.first_head = context.first_head;
  }
  return problem;
}

// The result of a problem on the device of `qkv`.
void compute(const AttentionProblem& problem, const at::Tensor& qkv) {
  if (const DeviceOps* device = device_ops(qkv))
    device->attention_forward(problem);
  else
    attention_forward(problem);
}

// What the backward pass needs beside tensors of activations.
struct KeptState {
  AttentionContext context;
  Heads heads;
  int64_t layer;
};

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* graph, const at::Tensor& qkv,
                            const AttentionContext& context, Heads heads, int64_t layer) {
    AttentionProblem problem = make_problem(qkv, context, heads, layer);
    const at::Tensor result = empty_result(qkv, heads);
    const at::Tensor log_sum_exp =
        at::empty({qkv.size(1), heads.queries, qkv.size(0)}, qkv.options().dtype(at::kFloat));
    problem.result = result_operand(result, heads);
    problem.log_sum_exp = log_sum_exp.mutable_data_ptr<float>();
    compute(problem, qkv);
    tensor::save_for_backward(graph, "attention", {{"qkv", qkv}, {"result", result}, {"log_sum_exp", log_sum_exp}});
    capture_state(graph, KeptState{context, heads, layer});
    return result;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* graph,
                                                 const torch::autograd::variable_list& upstream) {
    const torch::autograd::variable_list saved = graph->get_saved_variables();
    const at::Tensor &qkv = saved[0], &result = saved[1], &log_sum_exp = saved[2];
    const KeptState& state = captured_state<KeptState>(graph);
    AttentionProblem problem = make_problem(qkv, state.context, state.heads, state.layer);
    problem.result = result_operand(result, state.heads);
    problem.log_sum_exp = log_sum_exp.mutable_data_ptr<float>();

    const at::Tensor d_result = upstream[0].contiguous();
    const at::Tensor d_qkv = at::empty_like(qkv);
    AttentionGradients gradients;
    gradients.result = result_operand(d_result, state.heads);
    gradients.query = queries_of(d_qkv, state.heads);
    gradients.key = keys_of(d_qkv, state.heads);
    gradients.value = values_of(d_qkv, state.heads);
    if (const DeviceOps* device = device_ops(qkv))
      device->attention_backward(problem, gradients);
    else
      attention_backward(problem, gradients);
    return {d_qkv, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor forward_only(const at::Tensor& qkv, const AttentionContext& context, Heads heads, int64_t layer) {
  AttentionProblem problem = make_problem(qkv, context, heads, layer);
  const at::Tensor result = empty_result(qkv, heads);
  problem.result = result_operand(result, heads);
  compute(problem, qkv);
  return result;
}

// Copies part `part` of every group, keys or values, of the new positions after those of the cache.
void append(const at::Tensor& cache, const at::Tensor& qkv, Heads heads, int64_t part, int64_t length) {
  const at::Tensor parts = qkv.view({qkv.size(0), qkv.size(1), heads.groups, heads.parts_of_group(), -1});
  cache.narrow(2, length, qkv.size(0)).copy_(parts.select(3, part).permute({1, 2, 0, 3}));
}

at::Tensor cached_attention(const at::Tensor& qkv, const AttentionContext& context, Heads heads, int64_t layer) {
  const at::NoGradGuard no_grad;
  KeyValueCache& cache = *context.cache;
  ESPALIER_CHECK(layer >= 0 && layer < static_cast<int64_t>(cache.layers.size()), "layer ", layer, " of a cache of ",
                 cache.layers.size());
  ESPALIER_CHECK(cache.length + qkv.size(0) <= cache.capacity, "a cache of ", cache.capacity, " positions holds ",
                 cache.length, ", ", qkv.size(0), " are new");
  AttentionProblem problem = make_problem(qkv, context, heads, layer);
  const KeyValueCache::Layer& entry = cache.layers[layer];
  for (const at::Tensor& part : {entry.keys, entry.values}) {
    ESPALIER_CHECK(part.sizes() == at::IntArrayRef({problem.batch, heads.groups, cache.capacity, problem.head_size}) &&
                       part.stride(3) == 1 && part.scalar_type() == qkv.scalar_type(),
                   "the cache must be [b, groups, capacity, head_size] of the compute type");
  }
  append(entry.keys, qkv, heads, heads.per_group(), cache.length);
  append(entry.values, qkv, heads, heads.per_group() + 1, cache.length);
  const at::Tensor result = empty_result(qkv, heads);
  problem.first_query = cache.length;
  problem.key = cache_operand(entry.keys);
  problem.value = cache_operand(entry.values);
  problem.result = result_operand(result, heads);
  if (device_ops(qkv) == nullptr && problem.num_queries <= kFewQueries && !problem.dropout)
    attention_few_queries(problem);
  else
    compute(problem, qkv);
  return result;
}

}  // namespace

at::Tensor attention(const at::Tensor& qkv, const AttentionContext& context, Heads heads, int64_t layer) {
  check_arguments(qkv, context, heads);
  if (context.cache != nullptr) return cached_attention(qkv, context, heads, layer);
  if (!builds_graph(qkv)) return forward_only(qkv, context, heads, layer);
  return AttentionFunction::apply(qkv, context, heads, layer);
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
