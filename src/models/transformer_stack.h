// The layers of a transformer between its first and its last depth, and which rows of a sequence this process has: for
// the families that stack such layers.
//
// Legend: s sequence, b micro-batch, h hidden; S the rows of the sequence that this process holds between layers (s/cp,
// with sequence parallelism s/cp/tp).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "families/transformer.h"
#include "models/build.h"
#include "models/layer_source.h"
#include "nn/attention.h"
#include "nn/cross_attention.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "pipeline/stage.h"
#include "plan/partition.h"

namespace espalier::models {

// Of the attention of such layers: inside of their sequence, and to another one.
nn::AttentionShape attention_shape(const families::TransformerShape& shape);
nn::AttentionShape cross_attention_shape(const families::TransformerShape& shape);

// Attention, to another sequence as well where the shape says so, and MLP, each after a norm and beside a residual
// addition.
class TransformerLayer {
 public:
  TransformerLayer(const nn::LayerBuilder& builder, const families::TransformerShape& shape, int64_t layer);
  // [S, b, h] -> [S, b, h]. `encoded`: the other sequence, [S of it, b, h].
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context, const at::Tensor& encoded = {}) const;
  // Of the layer's attention to the other sequence, which it has.
  at::Tensor keys_and_values(const at::Tensor& encoded) const { return inter_attention_->keys_and_values(encoded); }
  void visit(tensor::ParamVisitor& visitor);

 private:
  nn::Norm input_layernorm_;
  nn::SelfAttention self_attention_;
  nn::Norm post_attention_layernorm_;
  std::optional<nn::CrossAttention> inter_attention_;
  std::optional<nn::Norm> post_inter_attention_layernorm_;
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

// What all layers of a stack read besides their stream: the sequence of layers with cross-attention, and the bias of
// self-attention by distance (tensor::AttentionContext::relative_bias). Gradients reach both.
struct BesideStream {
  at::Tensor encoded, relative_bias;
};

class TransformerStack {
 public:
  // The layers among the depths `part`. The builder's ParamSet holds their parameters, and with its grid outlives them.
  TransformerStack(const nn::LayerBuilder& builder, const families::TransformerShape& shape,
                   const plan::DepthRange& part, const StageOptions& options);

  bool empty() const { return layers_.empty(); }
  SequenceRows local_rows(int64_t sequence_length) const;  // of this process between layers: S
  // [S, b, h] of samples of the batch's length, or of another.
  pipeline::TensorShape hidden_shape(const std::string& name, const tensor::Batch& batch,
                                     std::optional<int64_t> sequence_length = {}) const;
  // `attention` with all that the run and the batch say; rates count in training only. Samples are of the batch's
  // length, or of another.
  nn::ForwardContext training_context(const pipeline::StageInput& input, tensor::AttentionContext attention,
                                      const DropoutRates& rates, std::optional<int64_t> sequence_length = {}) const;

  // With recompute, and with values that come when a layer needs them. The context is shared: a recomputed range runs
  // its layers again when the forward pass has long returned.
  at::Tensor forward(at::Tensor x, const std::shared_ptr<const nn::ForwardContext>& context,
                     const BesideStream& beside = {}) const;
  // What each layer attends to in the other sequence, where the stack has one.
  std::vector<at::Tensor> keys_and_values(const at::Tensor& encoded) const;
  // Each layer once, with actual values.
  at::Tensor forward_plain(at::Tensor x, const nn::ForwardContext& context, const BesideStream& beside = {}) const;
  void visit(tensor::ParamVisitor& visitor);
  // From where forward_plain and keys_and_values get the values of layers; null: they are there.
  void set_source(LayerSource* source) { source_ = source; }

 private:
  template <class Run>
  auto with_values(size_t number, Run run) const;
  at::Tensor run_layer(size_t number, const at::Tensor& x, const nn::ForwardContext& context,
                       const BesideStream& beside) const;

  StageOptions options_;
  families::TransformerShape shape_;
  const dist::Grid& grid_;
  dist::Group keepers_;  // of the inputs of recomputed layers: the tensor ranks, or this one alone
  bool sequence_parallel_;
  dist::LayerGather* gather_;
  LayerSource* source_ = nullptr;
  at::ScalarType compute_type_;
  int64_t first_layer_;     // of the stack, that this part has
  int64_t num_before_ = 0;  // layers of other stacks that precede them in this part
  std::vector<TransformerLayer> layers_;
};

}  // namespace espalier::models
