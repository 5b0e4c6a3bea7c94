#include "models/transformer_stack.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "dist/collectives.h"
#include "pipeline/recompute.h"

namespace espalier::models {

nn::AttentionShape attention_shape(const families::TransformerShape& shape) {
  nn::AttentionShape attention{.num_heads = shape.num_attention_heads,
                               .num_groups = shape.num_groups,
                               .head_size = shape.kv_channels,
                               .qkv_bias = shape.add_bias_linear || shape.add_qkv_bias,
                               .dense_bias = shape.add_bias_linear,
                               .rotary = shape.rotary,
                               .rotary_interleaved = shape.rotary_interleaved,
                               .head_norm_epsilon = {}};
  if (shape.qk_layernorm) attention.head_norm_epsilon = shape.layernorm_epsilon;
  return attention;
}

// The positions of two sequences have nothing to do with each other.
nn::AttentionShape cross_attention_shape(const families::TransformerShape& shape) {
  nn::AttentionShape attention = attention_shape(shape);
  attention.rotary = attention.rotary_interleaved = false;
  attention.head_norm_epsilon.reset();
  return attention;
}

TransformerLayer::TransformerLayer(const nn::LayerBuilder& builder, const families::TransformerShape& shape,
                                   int64_t layer)
    : input_layernorm_(builder, shape.layer_name(layer) + ".input_layernorm", shape.normalization,
                       shape.layernorm_epsilon),
      self_attention_(builder, shape.layer_name(layer) + ".self_attention", shape.first_layer + layer,
                      attention_shape(shape)),
      post_attention_layernorm_(builder, shape.layer_name(layer) + ".post_attention_layernorm", shape.normalization,
                                shape.layernorm_epsilon),
      mlp_(builder, shape.layer_name(layer) + ".mlp", shape.activation, shape.add_bias_linear),
      residual_from_layernorm_(shape.residual_from_layernorm) {
  if (!shape.cross_attention) return;
  inter_attention_.emplace(builder, shape.layer_name(layer) + ".inter_attention", shape.first_layer + layer,
                           cross_attention_shape(shape));
  post_inter_attention_layernorm_.emplace(builder, shape.layer_name(layer) + ".post_inter_attention_layernorm",
                                          shape.normalization, shape.layernorm_epsilon);
}

at::Tensor TransformerLayer::forward(const at::Tensor& x, const nn::ForwardContext& context,
                                     const at::Tensor& encoded) const {
  const at::Tensor attention_input = input_layernorm_.forward(x);
  at::Tensor a = self_attention_.forward(attention_input, residual_from_layernorm_ ? attention_input : x, context);
  at::Tensor mlp_input = post_attention_layernorm_.forward(a);
  if (inter_attention_) {
    a = inter_attention_->forward(mlp_input, encoded, residual_from_layernorm_ ? mlp_input : a, context);
    mlp_input = post_inter_attention_layernorm_->forward(a);
  }
  return mlp_.forward(mlp_input, residual_from_layernorm_ ? mlp_input : a, context);
}

void TransformerLayer::visit(tensor::ParamVisitor& visitor) {
  visitor.child("input_layernorm", input_layernorm_);
  visitor.child("self_attention", self_attention_);
  visitor.child("post_attention_layernorm", post_attention_layernorm_);
  if (inter_attention_) {
    visitor.child("inter_attention", *inter_attention_);
    visitor.child("post_inter_attention_layernorm", *post_inter_attention_layernorm_);
  }
  visitor.child("mlp", mlp_);
}

at::Tensor SequenceRows::of(const at::Tensor& whole) const { return whole.narrow(1, first, count).contiguous(); }

SequenceRows context_rows(const dist::Grid& grid, int64_t sequence_length) {
  const int64_t count = sequence_length / grid.shape.context;
  return {grid.position.context * count, count};
}

TransformerStack::TransformerStack(const nn::LayerBuilder& builder, const families::TransformerShape& shape,
                                   const plan::DepthRange& part, const StageOptions& options)
    : options_(options),
      shape_(shape),
      grid_(builder.grid),
      sequence_parallel_(builder.sequence_parallel),
      gather_(builder.gather),
      compute_type_(builder.params.compute_type()),
      first_layer_(std::max<int64_t>(part.begin - shape.depth_of(0), 0)) {
  // With sequence parallelism every rank keeps its own rows already.
  if (options.divide_kept_inputs && !builder.sequence_parallel) keepers_ = grid_.tensor;
  num_before_ = std::max<int64_t>(shape.depth_of(first_layer_) - std::max<int64_t>(part.begin, 1), 0);
  for (int64_t layer = first_layer_; layer < std::min(part.end - shape.depth_of(0), shape.num_layers); ++layer)
    layers_.emplace_back(builder, shape, layer);
}

SequenceRows TransformerStack::local_rows(int64_t sequence_length) const {
  const SequenceRows rows = context_rows(grid_, sequence_length);
  if (!sequence_parallel_) return rows;
  const int64_t count = rows.count / grid_.shape.tensor;
  return {rows.first + grid_.position.tensor * count, count};
}

pipeline::TensorShape TransformerStack::hidden_shape(const std::string& name, const tensor::Batch& batch,
                                                     std::optional<int64_t> sequence_length) const {
  const int64_t rows = local_rows(sequence_length.value_or(batch.ids.size(1))).count;
  return {name, {rows, batch.ids.size(0), shape_.hidden_size}, shape_.fp32_residual ? at::kFloat : compute_type_};
}

nn::ForwardContext TransformerStack::training_context(const pipeline::StageInput& input,
                                                      tensor::AttentionContext attention, const DropoutRates& rates,
                                                      std::optional<int64_t> sequence_length) const {
  nn::ForwardContext context;
  context.attention = std::move(attention);
  context.attention.sample_numbers = input.batch->sample_numbers;
  context.attention.seed = context.seed = options_.seed;
  context.attention.dropout = input.training ? rates.attention : 0;
  context.hidden_dropout = input.training ? rates.hidden : 0;
  context.first_position = local_rows(sequence_length.value_or(input.batch->ids.size(1))).first;
  context.sample_numbers = &input.batch->sample_numbers;
  return context;
}

at::Tensor TransformerStack::run_layer(size_t number, const at::Tensor& x, const nn::ForwardContext& context,
                                       const BesideStream& beside) const {
  if (!beside.relative_bias.defined()) return layers_[number].forward(x, context, beside.encoded);
  nn::ForwardContext with_bias = context;
  with_bias.attention.relative_bias = beside.relative_bias;
  return layers_[number].forward(x, with_bias, beside.encoded);
}

// Only what is defined can pass through a recomputed range.
at::Tensor TransformerStack::forward(at::Tensor x, const std::shared_ptr<const nn::ForwardContext>& context,
                                     const BesideStream& beside) const {
  std::vector<at::Tensor> tensors;
  const bool has_encoded = beside.encoded.defined(), has_bias = beside.relative_bias.defined();
  if (has_encoded) tensors.push_back(beside.encoded);
  if (has_bias) tensors.push_back(beside.relative_bias);
  const auto layer = [this, context, has_encoded, has_bias](int64_t number, const at::Tensor& in,
                                                            const std::vector<at::Tensor>& passed) {
    const int64_t of_model = shape_.first_layer + first_layer_ + number;
    const BesideStream read{.encoded = has_encoded ? passed.front() : at::Tensor(),
                            .relative_bias = has_bias ? passed.back() : at::Tensor()};
    const at::Tensor ready = dist::before_layer(gather_, of_model, in);
    return dist::after_layer(gather_, of_model, run_layer(static_cast<size_t>(number), ready, *context, read));
  };
  for (const auto& range : options_.recompute.ranges(static_cast<int64_t>(layers_.size()), num_before_))
    x = pipeline::run_layers(range, x, layer, keepers_, tensors);
  return x;
}

template <class Run>
auto TransformerStack::with_values(size_t number, Run run) const {
  if (source_ == nullptr) return run();
  const int64_t of_model = shape_.first_layer + first_layer_ + static_cast<int64_t>(number);
  source_->enter(of_model);
  auto made = run();
  source_->leave(of_model);
  return made;
}

std::vector<at::Tensor> TransformerStack::keys_and_values(const at::Tensor& encoded) const {
  std::vector<at::Tensor> of_layers;
  for (size_t number = 0; number < layers_.size(); ++number)
    of_layers.push_back(with_values(number, [&] { return layers_[number].keys_and_values(encoded); }));
  return of_layers;
}

at::Tensor TransformerStack::forward_plain(at::Tensor x, const nn::ForwardContext& context,
                                           const BesideStream& beside) const {
  for (size_t number = 0; number < layers_.size(); ++number)
    x = with_values(number, [&] { return run_layer(number, x, context, beside); });
  return x;
}

void TransformerStack::visit(tensor::ParamVisitor& visitor) {
  for (size_t layer = 0; layer < layers_.size(); ++layer)
    visitor.child(shape_.layer_name(first_layer_ + static_cast<int64_t>(layer)), layers_[layer]);
}

}  // namespace espalier::models
