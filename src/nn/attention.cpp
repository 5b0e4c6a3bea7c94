#include "nn/attention.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "dist/collectives.h"
#include "kernels/attention.h"
#include "kernels/dropout.h"

namespace espalier::nn {

SelfAttention::SelfAttention(const LayerBuilder& builder, const std::string& name, int64_t layer, int64_t num_heads)
    : query_key_value_(builder, name + ".query_key_value", ColumnLinear::Bias::kAdded),
      dense_(builder, name + ".dense"),
      name_(name),
      layer_(layer),
      num_heads_(num_heads / (builder.grid.shape.tensor * builder.grid.shape.context)),
      first_head_((builder.grid.position.tensor * builder.grid.shape.context + builder.grid.position.context) *
                  num_heads_),
      context_ranks_(builder.grid.context),
      queue_(builder.params.grad_queue()) {
  ESPALIER_CHECK(num_heads_ * builder.grid.shape.tensor * builder.grid.shape.context == num_heads, num_heads,
                 " heads over ", spec::to_string(builder.grid.shape));
}

at::Tensor SelfAttention::forward(const at::Tensor& x, const at::Tensor& residual,
                                  const ForwardContext& context) const {
  tensor::AttentionContext attention = context.attention;
  attention.first_head = first_head_;
  if (attention.alibi_slopes.defined())
    attention.alibi_slopes = attention.alibi_slopes.narrow(0, first_head_, num_heads_);
  // [s/cp, b, heads/tp*3*hd] -> [s, b, heads/(tp*cp)*3*hd]
  const at::Tensor qkv = dist::sequence_to_heads(query_key_value_.forward(x), context_ranks_);
  const at::Tensor mixed = dist::heads_to_sequence(kernels::attention(qkv, attention, num_heads_, layer_),
                                                   context_ranks_);  // [s/cp, b, heads/tp*hd]
  return kernels::bias_dropout_add(dense_.forward(mixed), &dense_.bias(), residual, context.dropout_site(name_),
                                   queue_);
}

void SelfAttention::visit(tensor::ParamVisitor& visitor) {
  visitor.child("query_key_value", query_key_value_);
  visitor.child("dense", dense_);
}

}  // namespace espalier::nn
