#include "nn/cross_attention.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "kernels/paged_attention.h"
#include "tensor/observe.h"

namespace espalier::nn {
namespace {

ColumnLinear::Bias bias_of_projections(const AttentionShape& shape) {
  return shape.qkv_bias ? ColumnLinear::Bias::kAdded : ColumnLinear::Bias::kNone;
}

}  // namespace

CrossAttention::CrossAttention(const LayerBuilder& builder, const std::string& name, int64_t layer,
                               const AttentionShape& shape)
    : query_(builder, name + ".query", bias_of_projections(shape)),
      key_value_(builder, name + ".key_value", bias_of_projections(shape)),
      dense_(builder, name + ".dense", shape.dense_bias),
      name_(name),
      layer_(layer),
      queue_(builder.params.grad_queue()) {
  const spec::GridShape& grid = builder.grid.shape;
  ESPALIER_CHECK(grid.context == 1, "attention between two sequences over ", grid.context, " context ranks");
  ESPALIER_CHECK(shape.num_groups % grid.tensor == 0 && shape.num_heads % shape.num_groups == 0, shape.num_heads,
                 " heads in ", shape.num_groups, " groups over ", spec::to_string(grid));
  ESPALIER_CHECK(!shape.rotary && !shape.head_norm_epsilon, "rotary positions, or norms of heads, in ", name);
  heads_ = {shape.num_heads / grid.tensor, shape.num_groups / grid.tensor};
  first_head_ = builder.grid.position.tensor * heads_.queries;
}

at::Tensor CrossAttention::keys_and_values(const at::Tensor& encoded, tensor::KeyValueCache* cache) const {
  if (cache == nullptr) return keys_and_values(encoded);
  ESPALIER_CHECK(layer_ < static_cast<int64_t>(cache->layers.size()), "layer ", layer_, " of a cache of ",
                 cache->layers.size());
  at::Tensor& kept = cache->layers[static_cast<size_t>(layer_)].cross;
  if (!kept.defined()) kept = keys_and_values(encoded);
  return kept;
}

at::Tensor CrossAttention::attend(const at::Tensor& x, const at::Tensor& encoded,
                                  const tensor::AttentionContext& context) const {
  if (context.pages != nullptr) return kernels::paged_cross_attention(query_.forward(x), context, heads_, layer_);
  const at::Tensor key_value = keys_and_values(encoded, context.cache);  // first: plans list what is kept in this order
  return kernels::cross_attention(query_.forward(x), key_value, context, heads_, layer_);
}

at::Tensor CrossAttention::forward(const at::Tensor& x, const at::Tensor& encoded, const at::Tensor& residual,
                                   const ForwardContext& context) const {
  tensor::AttentionContext attention = context.cross_attention;
  attention.first_head = first_head_;
  const at::Tensor mixed = tensor::observed(name_, ".attention", attend(x, encoded, attention));
  return tensor::observed(name_, kernels::bias_dropout_add(dense_.forward(mixed), dense_.bias(), residual,
                                                           context.dropout_site(name_), queue_));
}

void CrossAttention::visit(tensor::ParamVisitor& visitor) {
  visitor.child("query", query_);
  visitor.child("key_value", key_value_);
  visitor.child("dense", dense_);
}

}  // namespace espalier::nn
