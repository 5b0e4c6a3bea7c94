#include "nn/embedding.h"

#include "dist/collectives.h"
#include "kernels/embedding.h"
#include "spec/shard.h"
#include "tensor/observe.h"

namespace espalier::nn {

VocabularyEmbedding::VocabularyEmbedding(const LayerBuilder& builder, const std::string& name)
    : weight_(builder.params.at(name + ".weight")),
      queue_(builder.params.grad_queue()),
      ranks_(builder.grid.tensor),
      first_row_(spec::local_ranges(*weight_.spec, builder.params.shard()).at(0).begin),
      sequence_parallel_(builder.sequence_parallel) {}

at::Tensor VocabularyEmbedding::forward(const at::Tensor& ids) const {
  const at::Tensor part = kernels::embedding(ids, weight_, queue_, first_row_);
  return tensor::observed(
      weight_, sequence_parallel_ ? dist::sum_and_split_sequence(part, ranks_) : dist::sum_over_ranks(part, ranks_));
}

void VocabularyEmbedding::visit(tensor::ParamVisitor& visitor) { visitor.param("weight", weight_); }

PositionEmbedding::PositionEmbedding(const LayerBuilder& builder, const std::string& name)
    : weight_(builder.params.at(name + ".weight")), queue_(builder.params.grad_queue()) {}

at::Tensor PositionEmbedding::forward(const at::Tensor& positions) const {
  return tensor::observed(weight_, kernels::embedding(positions, weight_, queue_));
}

void PositionEmbedding::visit(tensor::ParamVisitor& visitor) { visitor.param("weight", weight_); }

}  // namespace espalier::nn
