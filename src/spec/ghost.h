// The life of a model's activations without the activations: tensors that have nothing but a size, and the operations
// of a model as far as tensors are made, kept and let go in them. A family writes each depth of its model once more
// with these, and plan/ counts what it would hold.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>

#include "spec/layers.h"

namespace espalier::spec {

struct ByteCount {
  double live = 0, peak = 0;
  void take(double bytes) {
    live += bytes;
    peak = std::max(peak, live);
  }
};

// Counted from its making until the last reference to it goes.
class GhostTensor {
 public:
  GhostTensor(ByteCount& count, double bytes) : count_(count), bytes_(bytes) { count_.take(bytes); }
  ~GhostTensor() { count_.live -= bytes_; }
  GhostTensor(const GhostTensor&) = delete;
  GhostTensor& operator=(const GhostTensor&) = delete;
  double bytes() const { return bytes_; }

 private:
  ByteCount& count_;
  double bytes_;
};

using Ghost = std::shared_ptr<const GhostTensor>;

// Of the whole model, in elements a token: channels of all queries, and with keys and values; query heads.
struct GhostAttention {
  double projection = 0, qkv = 0, heads = 0;
  double normed_heads = 0;  // of queries and keys, where each passes a norm of its own; 0: none does
  bool rotary = false;
};

// Each takes and gives the residual stream [S, b, h] but where it says otherwise.
class GhostOps {
 public:
  virtual ~GhostOps() = default;
  virtual Ghost look_up_words() = 0;
  virtual Ghost add_positions(Ghost x) = 0;
  virtual Ghost dropout(Ghost x) = 0;
  // To fp32, in which the stream continues from layer to layer.
  virtual Ghost widen(Ghost x) = 0;
  // `joins_residual`: its input continues in parallel, so that two gradients meet there.
  virtual Ghost norm(const Ghost& x, Normalization kind, bool joins_residual) = 0;
  // With their projections, dropout and residual addition. Of the MLP: width of its first product, and of its second's
  // input.
  virtual Ghost self_attention(const Ghost& x, const GhostAttention& sizes) = 0;
  virtual Ghost mlp(const Ghost& x, double inner, double ffn) = 0;
  // What follows attends to this sequence; its own stream begins anew.
  virtual void keep_other(Ghost x) = 0;
  // To the sequence that is kept, with projections, dropout and residual addition.
  virtual Ghost cross_attention(const Ghost& x, const GhostAttention& sizes) = 0;
  // A linear layer from hidden to hidden that every tensor rank has whole, and an activation.
  virtual Ghost dense_activation(Ghost x) = 0;
  // The first token of each sample is used as well: on the way back its gradient meets that of the others.
  virtual Ghost also_first_token(Ghost x) = 0;
  // Output layer and cross-entropy over the model's vocabulary; the graph ends here.
  virtual void language_model_loss(Ghost x) = 0;
};

// One depth: what it makes of the depth before (null for what begins with data), nullptr where it ends in losses.
using GhostProgram = std::function<Ghost(GhostOps& ops, const Ghost& x)>;

}  // namespace espalier::spec
