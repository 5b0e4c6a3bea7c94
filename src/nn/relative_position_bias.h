// T5's relative positions: a table of one number for each bucket of distances and each head, from which attention takes
// its bias (Raffel et al. 2020). One table serves all layers of a stack.
//
//   const nn::RelativePositionBias bias(builder, "encoder.relative_attention_bias", 128, /*bidirectional=*/true);
//   context.attention.relative_bias = bias.forward(sequence_length);
//
// Tensor ranks hold the columns of their heads, the table is split over dimension 1; of these a context rank uses its
// own while it attends (nn/attention.h). Each pipeline stage that has layers of the stack holds the table
// (ParamSpec::other_depths).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "nn/layer_builder.h"
#include "spec/relative_positions.h"

namespace espalier::nn {

class RelativePositionBias {
 public:
  // Parameter "<name>.weight" [buckets, heads]; the rest is that of spec::RelativePositions.
  RelativePositionBias(const LayerBuilder& builder, const std::string& name, int64_t max_distance, bool bidirectional);
  // tensor::AttentionContext::relative_bias of this rank's heads, for rows of up to `length` keys. One tensor for all
  // layers of a pass, with a graph of its own: what each layer's attention gives back comes to the table, recomputed or
  // not. One thread.
  at::Tensor forward(int64_t length) const;
  void visit(tensor::ParamVisitor& visitor);

 private:
  tensor::Param& weight_;
  tensor::GradQueue& queue_;
  spec::RelativePositions positions_;
  mutable at::Tensor buckets_;  // of the last length, [2 * length - 1] int64
};

}  // namespace espalier::nn
