// A model that continues text: what generation, scoring and serving need of it. No graph. Where its layers are split
// over tensor ranks, all of these call in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nn/forward_context.h"
#include "tensor/attention_context.h"

namespace espalier::models {

// What a cache of keys and values must hold on this process, and how far the model reaches.
struct DecoderShape {
  // `first_layer`: number of the first one that keeps keys and values; those before it are an encoder's.
  int64_t first_layer = 0, num_layers = 0, num_groups = 0, head_size = 0;
  int64_t vocab_size = 0;     // ids of the tokenizer: of the whole rows of logits, those that mean something
  int64_t max_positions = 0;  // that it has learned; 0: any
  // > 0: the rotary positions of sequences that may become longer than this are turned by other angles (longrope).
  int64_t short_positions = 0;
  bool whole_prompt = false;  // the tokens of a prompt all see each other; what comes after it is causal
};

// What an encoder has made of the prompts.
struct Encoded {
  at::Tensor hidden;             // [s, b, h]
  std::vector<int64_t> lengths;  // [b], of each row before its padding
};

// For `rows` sequences of up to `capacity` tokens.
tensor::KeyValueCache new_cache(const DecoderShape& model, at::ScalarType type, int64_t rows, int64_t capacity);

class NeighborReader;
class LayerSource;

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual DecoderShape decoder_shape() const = 0;
  // [b, s] ids at `positions` -> hidden states after the final norm, [s, b, h]. A cache in the context receives the
  // keys and values of these positions; rotary positions are then those of a sequence as long as its capacity, or, of
  // pages, those that each token's is_long names.
  // `encoded`: of models with an encoder, for which it is needed where there are no pages; the same for as long as the
  // cache is.
  virtual at::Tensor hidden_states(const at::Tensor& ids, const at::Tensor& positions,
                                   const nn::ForwardContext& context, const Encoded* encoded = nullptr) const = 0;
  // Of models with an encoder, [b, s] ids, of which each row has `lengths` before its padding.
  virtual Encoded encode(const at::Tensor& ids, const std::vector<int64_t>& lengths) const;
  // Of models with an encoder: what each layer from first_layer on attends to in what it has made of the prompts, as
  // kernels::cross_attention takes it. In pages (kernels::fill_pages) they take the place of `encoded`: then the
  // context of hidden_states has pages of its cross_attention too.
  virtual std::vector<at::Tensor> cross_keys_and_values(const Encoded& encoded) const;
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;  // [..., h] -> [..., V/tp] fp32
  // What of the attention belongs to the model itself (ALiBi slopes, window), to be completed by the caller.
  virtual tensor::AttentionContext attention_context() const = 0;
  // From now on the layers' values are there only between enter() and leave() of `source`, which outlives the model.
  // False where the model keeps all of them.
  virtual bool bring_layers(LayerSource&) { return false; }
  // The same model as one that reads neighbours of its text; null where it reads none.
  virtual const NeighborReader* neighbor_reader() const { return nullptr; }
};

}  // namespace espalier::models
