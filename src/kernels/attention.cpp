#include "kernels/attention.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/work_profile.h"
#include "kernels/captured.h"
#include "kernels/device_ops.h"
#include "kernels/internal/attention_problem.h"
#include "kernels/internal/drop_threshold.h"
#include "kernels/paged_attention.h"
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

// Where the queries, keys and values of an op, or their gradients, are: all in one tensor, fused, or keys and values in
// one of their own.
struct Projections {
  at::Tensor query, key_value;  // key_value undefined: fused, all in `query`
  Heads heads;

  bool fused() const { return !key_value.defined(); }
  int64_t head_size() const { return query.size(2) / (fused() ? heads.columns(1) : heads.query_columns(1)); }
  int64_t batch() const { return query.size(1); }
  int64_t num_keys() const { return (fused() ? query : key_value).size(0); }
  Projections empty_like() const {
    return {at::empty_like(query), fused() ? at::Tensor() : at::empty_like(key_value), heads};
  }
};

// From part `part` of every group's `parts` on, of x [s, b, groups * parts * head_size].
AttentionOperand operand_in(const at::Tensor& x, Heads heads, int64_t parts, int64_t part, bool of_queries) {
  const int64_t head_size = x.size(2) / (heads.groups * parts);
  AttentionOperand operand;
  operand.data = static_cast<char*>(x.data_ptr()) + part * head_size * x.element_size();
  operand.row_stride = x.size(2);
  operand.group_stride = parts * head_size;
  operand.member_stride = of_queries ? head_size : 0;
  operand.position_stride = x.size(1) * x.size(2);
  return operand;
}

// Gives a problem, or its gradients, the operands query, key and value.
template <class Operands>
void set_projections(Operands& to, const Projections& from) {
  const Heads heads = from.heads;
  const int64_t queries = heads.per_group();
  if (from.fused()) {
    to.query = operand_in(from.query, heads, queries + 2, 0, true);
    to.key = operand_in(from.query, heads, queries + 2, queries, false);
    to.value = operand_in(from.query, heads, queries + 2, queries + 1, false);
  } else {
    to.query = operand_in(from.query, heads, queries, 0, true);
    to.key = operand_in(from.key_value, heads, 2, 0, false);
    to.value = operand_in(from.key_value, heads, 2, 1, false);
  }
}

// [s, b, heads.queries * head_size].
AttentionOperand result_operand(const at::Tensor& result, Heads heads) {
  return operand_in(result, heads, heads.per_group(), 0, true);
}
at::Tensor empty_result(const Projections& from) {
  return at::empty({from.query.size(0), from.batch(), from.heads.query_columns(from.head_size())},
                   from.query.options());
}

// [b, groups, capacity, head_size].
AttentionOperand cache_operand(const at::Tensor& cache) {
  return {cache.data_ptr(), cache.stride(0), cache.stride(1), 0, cache.stride(2)};
}

void check_keys(const at::Tensor& keys, const at::Tensor& query, const char* name) {
  ESPALIER_CHECK(!keys.defined() || (keys.scalar_type() == at::kInt && keys.is_contiguous() && keys.dim() == 2 &&
                                     keys.size(0) == query.size(1) && keys.size(1) == query.size(0)),
                 name, " must be int32 [b, queries], contiguous: [", query.size(1), ", ", query.size(0), "]");
}

void check_context(const at::Tensor& query, const AttentionContext& context, Heads heads) {
  check_keys(context.first_key, query, "first_key");
  check_keys(context.last_key, query, "last_key");
  const at::Tensor& slopes = context.alibi_slopes;
  ESPALIER_CHECK(!slopes.defined() ||
                     (slopes.scalar_type() == at::kFloat && slopes.is_contiguous() && slopes.numel() == heads.queries),
                 "alibi_slopes must be float32 [heads]");
  const at::Tensor& bias = context.relative_bias;
  ESPALIER_CHECK(!bias.defined() || (bias.scalar_type() == at::kFloat && bias.is_contiguous() && bias.dim() == 2 &&
                                     bias.size(0) == heads.queries && bias.size(1) % 2 == 1),
                 "relative_bias must be float32 [", heads.queries, ", 2 n - 1], contiguous");
  ESPALIER_CHECK(!context.scale || std::isfinite(*context.scale), "scale = ", context.scale.value_or(0));
  ESPALIER_CHECK(context.soft_cap == 0 || (context.soft_cap > 0 && context.scale.value_or(1) > 0),
                 "soft_cap = ", context.soft_cap, " of scores times ", context.scale.value_or(1));
  ESPALIER_CHECK(context.window >= 0, "window = ", context.window);
  ESPALIER_CHECK(context.dropout >= 0 && context.dropout < 1, "dropout = ", context.dropout);
  ESPALIER_CHECK(context.dropout == 0 || static_cast<int64_t>(context.sample_numbers.size()) == query.size(1),
                 "dropout of ", query.size(1), " rows with ", context.sample_numbers.size(), " sample numbers");
  ESPALIER_CHECK(!context.max_logits.defined() ||
                     (context.max_logits.scalar_type() == at::kFloat && context.max_logits.numel() == heads.queries),
                 "max_logits must be float32 [", heads.queries, "]");
  ESPALIER_CHECK(context.first_head >= 0 && context.first_head + heads.queries <= 1 << 16, "heads from ",
                 context.first_head);
}

void check_projection(const at::Tensor& x, int64_t columns_of_features, Heads heads, const char* name) {
  ESPALIER_CHECK(x.dim() == 3 && x.is_contiguous(), name, " must be [s, b, columns of the heads], contiguous");
  ESPALIER_CHECK(x.size(2) > 0 && x.size(2) % columns_of_features == 0, name, " has ", x.size(2), " columns for ",
                 heads.queries, " heads in ", heads.groups, " groups");
}

void check_self(const at::Tensor& qkv, const AttentionContext& context, Heads heads) {
  check_heads(heads);
  check_projection(qkv, heads.columns(1), heads, "qkv");
  check_context(qkv, context, heads);
}

void check_cross(const at::Tensor& query, const at::Tensor& key_value, const AttentionContext& context, Heads heads) {
  check_heads(heads);
  check_projection(query, heads.query_columns(1), heads, "query");
  check_projection(key_value, heads.key_value_columns(1), heads, "key_value");
  ESPALIER_CHECK(query.size(1) == key_value.size(1) && query.scalar_type() == key_value.scalar_type() &&
                     query.size(2) / heads.query_columns(1) == key_value.size(2) / heads.key_value_columns(1),
                 "query ", query.sizes(), " ", query.scalar_type(), " cannot be combined with key_value ",
                 key_value.sizes(), " ", key_value.scalar_type(), " of ", heads.queries, " heads in ", heads.groups,
                 " groups");
  check_context(query, context, heads);
  ESPALIER_CHECK(!context.alibi_slopes.defined() && !context.relative_bias.defined(),
                 "a bias by distance between the positions of two sequences");
  ESPALIER_CHECK(context.window == 0, "a window of ", context.window, " between the positions of two sequences");
  ESPALIER_CHECK(context.mask == AttentionContext::Mask::kFull || context.last_key.defined(),
                 "causality between the positions of two sequences");
}

// What an op knows besides its tensors.
struct Setting {
  AttentionContext context;
  Heads heads;
  int64_t layer;
};

// Of a problem whose number of keys is known.
void set_relative_bias(AttentionProblem& problem, const at::Tensor& bias) {
  if (!bias.defined()) return;
  problem.relative_bias = bias.const_data_ptr<float>();
  problem.relative_reach = bias.size(1) / 2;
  ESPALIER_CHECK(problem.relative_reach >= problem.num_keys - 1, "relative_bias ", bias.sizes(), " for ",
                 problem.num_keys, " keys");
}

// The problem but for its result. `context` must outlive it.
AttentionProblem make_problem(const Projections& from, const AttentionContext& context, int64_t layer) {
  AttentionProblem problem;
  problem.backend = context.backend;
  problem.type = attention_type(from.query.scalar_type());
  problem.num_queries = from.query.size(0);
  problem.num_keys = from.num_keys();
  problem.batch = from.batch();
  problem.groups = from.heads.groups;
  problem.members = from.heads.per_group();
  problem.head_size = from.head_size();
  set_projections(problem, from);
  problem.scale = static_cast<float>(context.scale.value_or(1.0 / std::sqrt(static_cast<double>(problem.head_size))));
  problem.soft_cap = static_cast<float>(context.soft_cap);
  problem.causal = context.mask == AttentionContext::Mask::kCausal;
  problem.window = context.window;
  if (context.first_key.defined()) problem.first_key = context.first_key.const_data_ptr<int32_t>();
  if (context.last_key.defined()) problem.last_key = context.last_key.const_data_ptr<int32_t>();
  if (context.alibi_slopes.defined()) problem.slopes = context.alibi_slopes.const_data_ptr<float>();
  if (context.dropout > 0) {
    problem.dropout = true;
    problem.drop_below = drop_threshold(context.dropout);
    problem.keep_scale = static_cast<float>(1.0 / (1.0 - context.dropout));
    const std::string site = concat("dropout/layers.", layer, from.fused() ? ".attention" : ".cross_attention");
    problem.key_of_site = tensor::philox_key(context.seed, site.c_str());
    problem.sample_numbers = context.sample_numbers.data();
    problem.first_head = context.first_head;
  }
  return problem;
}

// The result of a problem on the device of `query`.
void compute(const AttentionProblem& problem, const at::Tensor& query) {
  if (const DeviceOps* device = device_ops(query))
    device->attention_forward(problem);
  else
    attention_forward(problem);
}

// For generation.
void compute_without_graph(const AttentionProblem& problem, const at::Tensor& query) {
  if (device_ops(query) == nullptr && problem.num_queries <= kFewQueries && !problem.dropout)
    attention_few_queries(problem);
  else
    compute(problem, query);
}

struct Attended {
  at::Tensor result, log_sum_exp;
};
Attended attend(const Projections& from, const AttentionContext& context, int64_t layer, bool with_log_sum_exp) {
  const WorkSpan span(Work::kAttention, "forward");
  AttentionProblem problem = make_problem(from, context, layer);
  set_relative_bias(problem, context.relative_bias);
  Attended attended{empty_result(from), {}};
  problem.result = result_operand(attended.result, from.heads);
  if (with_log_sum_exp) {
    attended.log_sum_exp =
        at::empty({from.batch(), from.heads.queries, from.query.size(0)}, from.query.options().dtype(at::kFloat));
    problem.log_sum_exp = attended.log_sum_exp.mutable_data_ptr<float>();
  }
  at::Tensor max_logits;
  if (context.max_logits.defined()) {
    max_logits =
        at::empty({from.batch(), from.heads.queries, from.query.size(0)}, from.query.options().dtype(at::kFloat));
    problem.max_logits = max_logits.mutable_data_ptr<float>();
  }
  compute(problem, from.query);
  if (max_logits.defined())
    context.max_logits.copy_(at::maximum(context.max_logits, max_logits.amax(at::IntArrayRef{0, 2})));
  return attended;
}

struct Gradients {
  Projections projections;
  at::Tensor relative_bias;  // undefined where it is not wanted
};
Gradients attend_backward(const Projections& from, const Attended& attended, const at::Tensor& upstream,
                          const Setting& setting, bool with_relative_bias = false) {
  const WorkSpan span(Work::kAttention, "backward");
  AttentionProblem problem = make_problem(from, setting.context, setting.layer);
  set_relative_bias(problem, setting.context.relative_bias);
  problem.result = result_operand(attended.result, from.heads);
  problem.log_sum_exp = attended.log_sum_exp.mutable_data_ptr<float>();
  const at::Tensor d_result = upstream.contiguous();
  const Gradients d{from.empty_like(),
                    with_relative_bias ? at::empty_like(setting.context.relative_bias) : at::Tensor()};
  AttentionGradients gradients;
  gradients.result = result_operand(d_result, from.heads);
  set_projections(gradients, d.projections);
  if (with_relative_bias) gradients.relative_bias = d.relative_bias.mutable_data_ptr<float>();
  if (const DeviceOps* device = device_ops(from.query))
    device->attention_backward(problem, gradients);
  else
    attention_backward(problem, gradients);
  return d;
}

// The context's relative bias, if there is one, comes as `relative_bias`: autograd looks at arguments alone.
struct SelfAttentionFunction : torch::autograd::Function<SelfAttentionFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* graph, const at::Tensor& qkv,
                            const std::optional<at::Tensor>& relative_bias, AttentionContext context, Heads heads,
                            int64_t layer) {
    if (relative_bias) context.relative_bias = relative_bias->detach();
    const Attended attended = attend({qkv, {}, heads}, context, layer, true);
    tensor::save_for_backward(graph, "attention",
                              {{"qkv", qkv}, {"result", attended.result}, {"log_sum_exp", attended.log_sum_exp}});
    capture_state(graph, Setting{context, heads, layer});
    return attended.result;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* graph,
                                                 const torch::autograd::variable_list& upstream) {
    const torch::autograd::variable_list saved = graph->get_saved_variables();
    const Setting& setting = captured_state<Setting>(graph);
    const bool with_relative_bias = setting.context.relative_bias.defined() && graph->needs_input_grad(1);
    const Gradients d =
        attend_backward({saved[0], {}, setting.heads}, {saved[1], saved[2]}, upstream[0], setting, with_relative_bias);
    return {d.projections.query, d.relative_bias, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct CrossAttentionFunction : torch::autograd::Function<CrossAttentionFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* graph, const at::Tensor& query,
                            const at::Tensor& key_value, const AttentionContext& context, Heads heads, int64_t layer) {
    const Attended attended = attend({query, key_value, heads}, context, layer, true);
    tensor::save_for_backward(graph, "cross_attention",
                              {{"query", query},
                               {"key_value", key_value},
                               {"result", attended.result},
                               {"log_sum_exp", attended.log_sum_exp}});
    capture_state(graph, Setting{context, heads, layer});
    return attended.result;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* graph,
                                                 const torch::autograd::variable_list& upstream) {
    const torch::autograd::variable_list saved = graph->get_saved_variables();
    const Setting& setting = captured_state<Setting>(graph);
    const Projections d =
        attend_backward({saved[0], saved[1], setting.heads}, {saved[2], saved[3]}, upstream[0], setting).projections;
    return {d.query, d.key_value, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// Copies [s, b, groups, head_size] of the new positions, keys or values, after those that each row has in the cache.
void append(const at::Tensor& cache, const at::Tensor& news, const std::vector<int64_t>& lengths) {
  const int64_t positions = news.size(0), batch = news.size(1);
  if (std::count(lengths.begin(), lengths.end(), lengths[0]) == batch) {
    cache.narrow(2, lengths[0], positions).copy_(news.permute({1, 2, 0, 3}));
    return;
  }
  const at::Tensor starts = at::tensor(lengths, at::kLong).view({batch, 1});
  const at::Tensor rows = at::arange(batch, at::kLong).view({batch, 1});
  const at::Tensor places = starts + at::arange(positions, at::kLong).view({1, positions});
  cache.permute({0, 2, 1, 3})
      .index_put_({rows.to(cache.device()), places.to(cache.device())}, news.permute({1, 0, 2, 3}));
}

void check_cache(const KeyValueCache& cache, const Projections& from, int64_t layer) {
  ESPALIER_CHECK(layer >= 0 && layer < static_cast<int64_t>(cache.layers.size()), "layer ", layer, " of a cache of ",
                 cache.layers.size());
  ESPALIER_CHECK(static_cast<int64_t>(cache.lengths.size()) == from.batch(), "a cache with the lengths of ",
                 cache.lengths.size(), " rows for ", from.batch());
  for (const int64_t length : cache.lengths)
    ESPALIER_CHECK(length >= 0 && length + from.query.size(0) <= cache.capacity, "a cache of ", cache.capacity,
                   " positions holds ", length, " of a row, ", from.query.size(0), " are new");
  for (const at::Tensor& part : {cache.layers[layer].keys, cache.layers[layer].values})
    ESPALIER_CHECK(
        part.sizes() == at::IntArrayRef({from.batch(), from.heads.groups, cache.capacity, from.head_size()}) &&
            part.stride(3) == 1 && part.scalar_type() == from.query.scalar_type(),
        "the cache must be [b, groups, capacity, head_size] of the compute type");
}

at::Tensor cached_attention(const Projections& from, const AttentionContext& context, int64_t layer) {
  const at::NoGradGuard no_grad;
  const KeyValueCache& cache = *context.cache;
  check_cache(cache, from, layer);
  const KeyValueCache::Layer& entry = cache.layers[layer];
  const at::Tensor& qkv = from.query;
  const at::Tensor parts =
      qkv.view({qkv.size(0), qkv.size(1), from.heads.groups, from.heads.parts_of_group(), from.head_size()});
  append(entry.keys, parts.select(3, from.heads.per_group()), cache.lengths);
  append(entry.values, parts.select(3, from.heads.per_group() + 1), cache.lengths);

  AttentionProblem problem = make_problem(from, context, layer);
  problem.cache_lengths = cache.lengths.data();
  problem.num_keys = *std::max_element(cache.lengths.begin(), cache.lengths.end()) + problem.num_queries;
  set_relative_bias(problem, context.relative_bias);
  problem.key = cache_operand(entry.keys);
  problem.value = cache_operand(entry.values);
  const at::Tensor result = empty_result(from);
  problem.result = result_operand(result, from.heads);
  compute_without_graph(problem, qkv);
  return result;
}

at::Tensor cross_attention_without_graph(const Projections& from, const AttentionContext& context, int64_t layer) {
  const at::NoGradGuard no_grad;
  AttentionProblem problem = make_problem(from, context, layer);
  const at::Tensor result = empty_result(from);
  problem.result = result_operand(result, from.heads);
  compute_without_graph(problem, from.query);
  return result;
}

}  // namespace

at::Tensor attention(const at::Tensor& qkv, const AttentionContext& context, Heads heads, int64_t layer) {
  check_self(qkv, context, heads);
  if (context.pages != nullptr) return paged_attention(qkv, context, heads, layer);
  if (context.cache != nullptr) return cached_attention({qkv, {}, heads}, context, layer);
  if (!builds_graph(qkv) && !builds_graph(context.relative_bias))
    return attend({qkv, {}, heads}, context, layer, false).result;
  std::optional<at::Tensor> relative_bias;
  if (context.relative_bias.defined()) relative_bias = context.relative_bias;
  return SelfAttentionFunction::apply(qkv, relative_bias, context, heads, layer);
}

at::Tensor cross_attention(const at::Tensor& query, const at::Tensor& key_value, const AttentionContext& context,
                           Heads heads, int64_t layer) {
  check_cross(query, key_value, context, heads);
  if (context.cache != nullptr) return cross_attention_without_graph({query, key_value, heads}, context, layer);
  if (!builds_graph(query) && !builds_graph(key_value))
    return attend({query, key_value, heads}, context, layer, false).result;
  return CrossAttentionFunction::apply(query, key_value, context, heads, layer);
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
