#include "nn/attention.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "dist/collectives.h"
#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "kernels/qk_norm.h"
#include "kernels/rotary.h"
#include "tensor/observe.h"

namespace espalier::nn {

SelfAttention::SelfAttention(const LayerBuilder& builder, const std::string& name, int64_t layer,
                             const AttentionShape& shape)
    : query_key_value_(builder, name + ".query_key_value",
                       shape.qkv_bias ? ColumnLinear::Bias::kAdded : ColumnLinear::Bias::kNone),
      dense_(builder, name + ".dense", shape.dense_bias),
      name_(name),
      layer_(layer),
      shape_(shape),
      backend_(builder.attention_backend),
      context_ranks_(builder.grid.context),
      queue_(builder.params.grad_queue()) {
  const spec::GridShape& grid = builder.grid.shape;
  const int64_t ranks = grid.tensor * grid.context;
  ESPALIER_CHECK(shape.num_groups % ranks == 0 && shape.num_heads % shape.num_groups == 0, shape.num_heads,
                 " heads in ", shape.num_groups, " groups over ", spec::to_string(grid));
  heads_ = {shape.num_heads / ranks, shape.num_groups / ranks};
  first_head_ = (builder.grid.position.tensor * grid.context + builder.grid.position.context) * heads_.queries;
  if (builder.logit_maxima != nullptr) add_logits(builder, name);
  if (!shape.head_norm_epsilon) return;
  query_norm_ = &builder.params.at(name + ".query_norm.weight");
  key_norm_ = &builder.params.at(name + ".key_norm.weight");
}

void SelfAttention::add_logits(const LayerBuilder& builder, const std::string& name) {
  tensor::ParamSet& params = builder.params;
  logit_maxima_ = builder.logit_maxima;
  max_logits_ = at::zeros({shape_.num_heads / builder.grid.shape.tensor},
                          at::TensorOptions().dtype(at::kFloat).device(params.device()));
  logit_maxima_->add({.weight = &params.at(name + ".query_key_value.weight"),
                      .bias = shape_.qkv_bias ? &params.at(name + ".query_key_value.bias") : nullptr,
                      .queries = shape_.num_heads / shape_.num_groups,
                      .head_size = shape_.head_size,
                      .largest = max_logits_});
}

// What happens to queries and keys before they meet. qkv: [s, b, groups * channels of a group] of this rank's heads.
at::Tensor SelfAttention::prepare(at::Tensor qkv, const ForwardContext& context) const {
  if (query_norm_ != nullptr)
    qkv = tensor::observed(name_, ".query_and_key_norm",
                           kernels::qk_norm(qkv, *query_norm_, *key_norm_, heads_, *shape_.head_norm_epsilon, queue_));
  if (shape_.rotary)
    qkv = tensor::observed(
        name_, ".rotary",
        kernels::rotary(qkv, context.rotary, context.positions, heads_, shape_.head_size, shape_.rotary_interleaved));
  return qkv;
}

at::Tensor SelfAttention::forward(const at::Tensor& x, const at::Tensor& residual,
                                  const ForwardContext& context) const {
  tensor::AttentionContext attention = context.attention;
  attention.first_head = first_head_;
  attention.backend = backend_;
  if (attention.alibi_slopes.defined())
    attention.alibi_slopes = attention.alibi_slopes.narrow(0, first_head_, heads_.queries);
  if (attention.relative_bias.defined() && context_ranks_.size() > 1)
    attention.relative_bias = attention.relative_bias.narrow(0, context_ranks_.rank() * heads_.queries, heads_.queries);
  if (logit_maxima_ != nullptr && logit_maxima_->collecting())
    attention.max_logits = max_logits_.narrow(0, context_ranks_.rank() * heads_.queries, heads_.queries);
  // [s/cp, b, columns/tp] -> [s, b, columns/(tp*cp)]
  const at::Tensor qkv = prepare(dist::sequence_to_heads(query_key_value_.forward(x), context_ranks_), context);
  const at::Tensor mixed =
      dist::heads_to_sequence(tensor::observed(name_, ".attention", kernels::attention(qkv, attention, heads_, layer_)),
                              context_ranks_);  // [s/cp, b, heads/tp*hd]
  return tensor::observed(name_, kernels::bias_dropout_add(dense_.forward(mixed), dense_.bias(), residual,
                                                           context.dropout_site(name_), queue_));
}

void SelfAttention::visit(tensor::ParamVisitor& visitor) {
  visitor.child("query_key_value", query_key_value_);
  if (query_norm_ != nullptr) visitor.param("query_norm.weight", *query_norm_);
  if (key_norm_ != nullptr) visitor.param("key_norm.weight", *key_norm_);
  visitor.child("dense", dense_);
}

}  // namespace espalier::nn
