// The layers of a transformer between its first and its last depth, and which rows of a sequence this process has: for
// the families that stack such layers.
//
// Legend: s sequence, b micro-batch, h hidden; S the rows of the sequence that this process holds between layers (s/cp,
// with sequence parallelism s/cp/tp).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "families/transformer.h"
#include "models/build.h"
#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "pipeline/stage.h"
#include "plan/partition.h"

namespace espalier::models {

// Attention and MLP, each after a norm and beside a residual addition.
class TransformerLayer {
 public:
  TransformerLayer(const nn::LayerBuilder& builder, const families::TransformerShape& shape, int64_t layer);
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) const;  // [S, b, h] -> [S, b, h]
  void visit(tensor::ParamVisitor& visitor);

 private:
  nn::Norm input_layernorm_;
  nn::SelfAttention self_attention_;
  nn::Norm post_attention_layernorm_;
  nn::Mlp mlp_;
  bool residual_from_layernorm_;
};

// Rows of a sequence.
struct SequenceRows {
  int64_t first = 0, count = 0;
  // Of a tensor [b, s]: [b, count].
  at::Tensor of(const at::Tensor& whole) const;
};
SequenceRows context_rows(const dist::Grid& grid, int64_t sequence_length);  // of this context rank: s/cp

// What every layer of a pass sees of dropout.
struct DropoutRates {
  double hidden = 0, attention = 0;
};

class TransformerStack {
 public:
  // The layers among the depths `part`. The builder's ParamSet holds their parameters, and with its grid outlives them.
  TransformerStack(const nn::LayerBuilder& builder, const families::TransformerShape& shape,
                   const plan::DepthRange& part, const StageOptions& options);

  SequenceRows local_rows(int64_t sequence_length) const;  // of this process between layers: S
  // "hidden", [S, b, h]
  std::vector<pipeline::TensorShape> hidden_shape(const tensor::Batch& batch) const;
  // `attention` with all that the run and the batch say; rates count in training only.
  nn::ForwardContext training_context(const pipeline::StageInput& input, tensor::AttentionContext attention,
                                      const DropoutRates& rates) const;

  // With recompute, and with values that come when a layer needs them. The context is shared: a recomputed range runs
  // its layers again when the forward pass has long returned.
  at::Tensor forward(at::Tensor x, const std::shared_ptr<const nn::ForwardContext>& context) const;
  // Each layer once, with values that are there.
  at::Tensor forward_plain(at::Tensor x, const nn::ForwardContext& context) const;
  void visit(tensor::ParamVisitor& visitor);

 private:
  StageOptions options_;
  const dist::Grid& grid_;
  dist::Group keepers_;  // of the inputs of recomputed layers: the tensor ranks, or this one alone
  bool sequence_parallel_;
  dist::LayerGather* gather_;
  at::ScalarType compute_type_;
  int64_t hidden_size_;
  int64_t first_layer_;
  std::vector<TransformerLayer> layers_;
};

}  // namespace espalier::models
