#include "models/retro/retrieval_layer.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace espalier::models {

at::Tensor to_chunks(const at::Tensor& x, int64_t chunk_length) {
  const int64_t b = x.size(1), h = x.size(2);
  ESPALIER_CHECK(x.size(0) % chunk_length == 0, x.size(0), " tokens in chunks of ", chunk_length);
  return x.view({-1, chunk_length, b, h}).permute({1, 2, 0, 3}).reshape({chunk_length, -1, h}).contiguous();
}

at::Tensor from_chunks(const at::Tensor& chunks, int64_t num_samples) {
  const int64_t m = chunks.size(0), h = chunks.size(2);
  return chunks.view({m, num_samples, -1, h}).permute({2, 0, 1, 3}).reshape({-1, num_samples, h}).contiguous();
}

RetrievalLayer::RetrievalLayer(const nn::LayerBuilder& builder, const families::TransformerShape& shape, int64_t layer,
                               int64_t chunk_length)
    : chunk_length_(chunk_length),
      input_layernorm_(builder, shape.layer_name(layer) + ".input_layernorm", shape.normalization,
                       shape.layernorm_epsilon),
      self_attention_(builder, shape.layer_name(layer) + ".self_attention", layer, attention_shape(shape)),
      post_attention_layernorm_(builder, shape.layer_name(layer) + ".post_attention_layernorm", shape.normalization,
                                shape.layernorm_epsilon),
      inter_attention_(builder, shape.layer_name(layer) + ".inter_attention", layer, cross_attention_shape(shape)),
      post_inter_attention_layernorm_(builder, shape.layer_name(layer) + ".post_inter_attention_layernorm",
                                      shape.normalization, shape.layernorm_epsilon),
      mlp_(builder, shape.layer_name(layer) + ".mlp", shape.activation, shape.add_bias_linear),
      residual_from_layernorm_(shape.residual_from_layernorm) {}

RetrievalLayer::Attended RetrievalLayer::self_attend(const at::Tensor& x, const nn::ForwardContext& context) const {
  const at::Tensor input = input_layernorm_.forward(x);
  at::Tensor stream = self_attention_.forward(input, residual_from_layernorm_ ? input : x, context);
  at::Tensor normed = post_attention_layernorm_.forward(stream);
  return {std::move(stream), std::move(normed)};
}

// From the last token of the first chunk on, the tokens stand in chunks of their own, one token before those of the
// sequence; what the last one lacks is filled up, and nothing reads it.
at::Tensor RetrievalLayer::attend_to_neighbors(const at::Tensor& normed, const at::Tensor& neighbors,
                                               const at::Tensor& residual, const nn::ForwardContext& chunks) const {
  const int64_t s = normed.size(0), before = chunk_length_ - 1;
  const auto shifted = [&](const at::Tensor& x) {
    return to_chunks(at::constant_pad_nd(x.narrow(0, before, s - before), {0, 0, 0, 0, 0, before}), chunk_length_);
  };
  const at::Tensor attended = inter_attention_.forward(shifted(normed), neighbors, shifted(residual), chunks);
  return at::cat({residual.narrow(0, 0, before), from_chunks(attended, normed.size(1)).narrow(0, 0, s - before)});
}

at::Tensor RetrievalLayer::finish(const Attended& attended, const at::Tensor& neighbors,
                                  const nn::ForwardContext& context, const nn::ForwardContext& chunks) const {
  at::Tensor stream = residual_of(attended);
  if (neighbors.defined()) stream = attend_to_neighbors(attended.normed, neighbors, stream, chunks);
  return feed_forward(stream, context);
}

at::Tensor RetrievalLayer::finish_within_chunk(const Attended& attended, const at::Tensor& neighbors,
                                               const nn::ForwardContext& context,
                                               const nn::ForwardContext& chunks) const {
  at::Tensor stream = residual_of(attended);
  if (neighbors.defined()) stream = inter_attention_.forward(attended.normed, neighbors, stream, chunks);
  return feed_forward(stream, context);
}

const at::Tensor& RetrievalLayer::residual_of(const Attended& attended) const {
  return residual_from_layernorm_ ? attended.normed : attended.stream;
}

at::Tensor RetrievalLayer::feed_forward(const at::Tensor& stream, const nn::ForwardContext& context) const {
  const at::Tensor input = post_inter_attention_layernorm_.forward(stream);
  return mlp_.forward(input, residual_from_layernorm_ ? input : stream, context);
}

void RetrievalLayer::visit(tensor::ParamVisitor& visitor) {
  visitor.child("input_layernorm", input_layernorm_);
  visitor.child("self_attention", self_attention_);
  visitor.child("post_attention_layernorm", post_attention_layernorm_);
  visitor.child("inter_attention", inter_attention_);
  visitor.child("post_inter_attention_layernorm", post_inter_attention_layernorm_);
  visitor.child("mlp", mlp_);
}

NeighborEncoder::NeighborEncoder(const nn::LayerBuilder& builder, const families::RetroConfig& config)
    : num_neighbors_(config.num_neighbors) {
  families::TransformerShape shape = config.encoder();
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    shape.cross_attention = layer == 0;
    names_.push_back(shape.layer_name(layer));
    layers_.emplace_back(builder, shape, layer);
  }
}

at::Tensor NeighborEncoder::forward(const at::Tensor& neighbors, const at::Tensor& chunks,
                                    const nn::ForwardContext& context) const {
  const int64_t m = chunks.size(0), rows = chunks.size(1), h = chunks.size(2), k = num_neighbors_;
  const at::Tensor read = chunks.unsqueeze(2).expand({m, rows, k, h}).reshape({m, rows * k, h}).contiguous();
  at::Tensor x = neighbors;
  for (const TransformerLayer& layer : layers_) x = layer.forward(x, context, read);
  // The tokens of a neighbour follow each other, so that those of one that is missing come last.
  return x.view({-1, rows, k, h}).permute({2, 0, 1, 3}).reshape({-1, rows, h}).contiguous();
}

void NeighborEncoder::visit(tensor::ParamVisitor& visitor) {
  for (size_t layer = 0; layer < layers_.size(); ++layer) visitor.child(names_[layer], layers_[layer]);
}

}  // namespace espalier::models
