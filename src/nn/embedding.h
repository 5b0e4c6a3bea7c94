// A table of vectors: of words, split over the tensor ranks by vocabulary, or of positions, the same on all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "nn/layer_builder.h"

namespace espalier::nn {

// Rows that are looked up by token id; each rank holds a range of the vocabulary.
class VocabularyEmbedding {
 public:
  VocabularyEmbedding(const LayerBuilder& builder, const std::string& name);
  // [b, s] int64 -> [s, b, h], or this rank's [s/tp, b, h] with sequence parallelism.
  at::Tensor forward(const at::Tensor& ids) const;
  void visit(tensor::ParamVisitor& visitor);

 private:
  tensor::Param& weight_;
  tensor::GradQueue& queue_;
  const dist::Group& ranks_;
  int64_t first_row_;
  bool sequence_parallel_;
};

// Rows that are looked up by position.
class PositionEmbedding {
 public:
  PositionEmbedding(const LayerBuilder& builder, const std::string& name);
  at::Tensor forward(const at::Tensor& positions) const;  // [b, S] int64 -> [S, b, h]
  void visit(tensor::ParamVisitor& visitor);

 private:
  tensor::Param& weight_;
  tensor::GradQueue& queue_;
};

}  // namespace espalier::nn
