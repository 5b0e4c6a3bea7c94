#include "nn/relative_position_bias.h"

#include <ATen/ATen.h>

#include "kernels/embedding.h"

namespace espalier::nn {

RelativePositionBias::RelativePositionBias(const LayerBuilder& builder, const std::string& name, int64_t max_distance,
                                           bool bidirectional)
    : weight_(builder.params.at(name + ".weight")),
      queue_(builder.params.grad_queue()),
      positions_{
          .num_buckets = weight_.spec->shape.at(0), .max_distance = max_distance, .bidirectional = bidirectional} {}

at::Tensor RelativePositionBias::forward(int64_t length) const {
  if (!buckets_.defined() || buckets_.size(0) != 2 * length - 1)
    buckets_ = at::tensor(spec::relative_buckets(positions_, length), at::kLong).to(weight_.value.device());
  return kernels::embedding_columns(buckets_, weight_, queue_);
}

void RelativePositionBias::visit(tensor::ParamVisitor& visitor) { visitor.param("weight", weight_); }

}  // namespace espalier::nn
