#include "nn/attention.h"

#include "kernels/attention.h"
#include "kernels/dropout.h"

namespace espalier::nn {

SelfAttention::SelfAttention(tensor::ParamSet& params, const std::string& name, int64_t layer, int64_t num_heads)
    : query_key_value_(params, name + ".query_key_value", ColumnLinear::Bias::kAdded),
      dense_(params, name + ".dense"),
      name_(name),
      layer_(layer),
      num_heads_(num_heads),
      queue_(params.grad_queue()) {}

at::Tensor SelfAttention::forward(const at::Tensor& x, const at::Tensor& residual,
                                  const ForwardContext& context) const {
  const at::Tensor qkv = query_key_value_.forward(x);                                       // [s, b, heads*3*hd]
  const at::Tensor mixed = kernels::attention(qkv, context.attention, num_heads_, layer_);  // [s, b, heads*hd]
  return kernels::bias_dropout_add(dense_.forward(mixed), &dense_.bias(), residual, context.dropout_site(name_),
                                   queue_);
}

void SelfAttention::visit(tensor::ParamVisitor& visitor) {
  visitor.child("query_key_value", query_key_value_);
  visitor.child("dense", dense_);
}

}  // namespace espalier::nn
