// What a Retro adds to the layers of a GPT: attention from chunks to their neighbours, and the encoder of those.
//
// Legend: s sequence of l chunks of m tokens, b micro-batch, h hidden; k neighbours of a chunk, of r tokens each.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "families/retro/config.h"
#include "models/transformer_stack.h"
#include "nn/attention.h"
#include "nn/cross_attention.h"
#include "nn/layer_builder.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace espalier::models {

// A sequence in chunks: [l m, b, h] -> [m, b l, h], a row for each chunk of each sample, and back.
at::Tensor to_chunks(const at::Tensor& x, int64_t chunk_length);
at::Tensor from_chunks(const at::Tensor& chunks, int64_t num_samples);

// The contexts of one pass. Each has rows of its own kind, which dropout tells apart by numbers of their own.
struct RetrievalContexts {
  nn::ForwardContext chunks;     // [m, b l, h]: what their attention sees of the neighbours
  nn::ForwardContext neighbors;  // [r, b l k, h]
  std::vector<int64_t> chunk_numbers, neighbor_numbers;
};

// A layer of the GPT that attends to neighbours, in two steps, between which the first of them encodes these.
class RetrievalLayer {
 public:
  RetrievalLayer(const nn::LayerBuilder& builder, const families::TransformerShape& shape, int64_t layer,
                 int64_t chunk_length);

  struct Attended {
    at::Tensor stream, normed;  // [s, b, h]: after self-attention, and that after its norm
  };
  Attended self_attend(const at::Tensor& x, const nn::ForwardContext& context) const;
  // The rest of the layer. Token i attends to the neighbours of chunk (i + 1) / m - 1, the last one of which it or a
  // token before it is the end; the first m - 1 tokens attend to none. `neighbors`: [k r, b l, h], or undefined: then
  // nobody does.
  at::Tensor finish(const Attended& attended, const at::Tensor& neighbors, const nn::ForwardContext& context,
                    const nn::ForwardContext& chunks) const;
  // The same for tokens that all attend to the same neighbours, [k r, b, h]: those of one chunk.
  at::Tensor finish_within_chunk(const Attended& attended, const at::Tensor& neighbors,
                                 const nn::ForwardContext& context, const nn::ForwardContext& chunks) const;
  void visit(tensor::ParamVisitor& visitor);

 private:
  const at::Tensor& residual_of(const Attended& attended) const;
  at::Tensor feed_forward(const at::Tensor& stream, const nn::ForwardContext& context) const;
  at::Tensor attend_to_neighbors(const at::Tensor& normed, const at::Tensor& neighbors, const at::Tensor& residual,
                                 const nn::ForwardContext& chunks) const;

  int64_t chunk_length_;
  nn::Norm input_layernorm_;
  nn::SelfAttention self_attention_;
  nn::Norm post_attention_layernorm_;
  nn::CrossAttention inter_attention_;
  nn::Norm post_inter_attention_layernorm_;
  nn::Mlp mlp_;
  bool residual_from_layernorm_;
};

// Layers that see a neighbour as a whole; the first also attends to the chunk whose neighbour it is.
class NeighborEncoder {
 public:
  NeighborEncoder(const nn::LayerBuilder& builder, const families::RetroConfig& config);
  // x: [r, b l k, h], the embedded neighbours; chunks: [m, b l, h]. -> [k r, b l, h]
  at::Tensor forward(const at::Tensor& x, const at::Tensor& chunks, const nn::ForwardContext& context) const;
  void visit(tensor::ParamVisitor& visitor);

 private:
  int64_t num_neighbors_;
  std::vector<std::string> names_;
  std::vector<TransformerLayer> layers_;
};

}  // namespace espalier::models
