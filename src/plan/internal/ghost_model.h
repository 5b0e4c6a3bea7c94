// A part of a GPT, run forward and backward with ghost tensors: the text of nn/, models/gpt and the ops of kernels/, as
// far as tensors are made, kept and let go in it.
#pragma once

#include <functional>
#include <vector>

#include "plan/activation_memory.h"
#include "plan/internal/ghost.h"

namespace espalier::plan::internal {

// Sizes on one rank; legend as in dist/collectives.h. S: rows of the residual stream, s/cp, / tp under sequence
// parallelism.
struct GhostSizes {
  double element = 4;           // bytes of the compute type
  double rows = 0, tokens = 0;  // S * b; s/cp * b
  double hidden = 0;
  // Of this tensor rank: channels of all queries, and with keys and values; query heads, with key heads; ...
  double projection = 0, qkv = 0, heads = 0, normed_heads = 0;
  double inner = 0, ffn = 0, vocabulary = 0;  // width of the MLP before and after its activation
  double positions = 0;                       // s * b, with rotary positions
  bool rms_norm = false, head_norm = false;
  bool sequence_parallel = false, context_parallel = false, dropout = false;
  ProductKind products = ProductKind::kDirect;
  double kept_input_share = 1;  // of a recomputed range's input: 1/tp where tensor ranks divide it
  double layer_weights = 0;     // that exist only while a layer runs (ZeRO 3)
};

class GhostModel {
 public:
  explicit GhostModel(const GhostSizes& sizes) : s_(sizes) {}

  struct Part {
    bool embeds = false, has_positions = false, has_norm = false;
    Recompute recompute;
    int64_t num_layers = 0;
    bool has_output = false;
  };
  // The forward pass; what a backward needs is kept until backward() or the end of this object.
  void forward(const Part& part);
  // In a deferring schedule what weight gradients need is kept until weight_grads().
  void backward(bool deferring);
  void weight_grads();

  ByteCount& count() { return count_; }
  const std::vector<SavedBytes>& saved() const { return saved_; }

 private:
  using Backward = std::function<Ghost(Ghost)>;

  Ghost make(double bytes) { return std::make_shared<GhostTensor>(count_, bytes); }
  Ghost make_x() { return make(s_.rows * s_.hidden * s_.element); }
  void need(double bytes) { make(bytes); }  // for a moment
  void save(const char* op, const char* name, const Ghost& tensor);
  void push(Backward backward);
  Ghost run_backward(size_t down_to, Ghost gradient);

  double product_bytes(double in, double out) const;
  double weight_grad_bytes(double in, double out) const;
  Ghost linear(const Ghost& x, double in, double out);
  Ghost gather(const Ghost& x);           // [S, ...] -> [s/cp, ...]
  Ghost sum_and_split(Ghost x);           // [s/cp, ...] -> [S, ...]
  Ghost exchange(Ghost x, double bytes);  // sequence_to_heads, heads_to_sequence
  Ghost norm(const Ghost& x, bool rms, bool joins_residual);
  Ghost head_norm(const Ghost& qkv);
  Ghost rotary(const Ghost& qkv);
  Ghost attention(const Ghost& qkv);
  Ghost activation(const Ghost& x);
  Ghost add_dropout(const Ghost& x);
  Ghost self_attention(const Ghost& x);
  Ghost mlp(const Ghost& x);
  Ghost layer(const Ghost& x);
  Ghost layer_with_weights(const Ghost& x);
  Ghost layers(Ghost x, int64_t num_layers);
  Ghost recomputed(const Ghost& x, int64_t num_layers);
  Ghost embed(const Part& part);
  void output(const Ghost& x);
  Ghost output_backward_panels(const Ghost& x);
  Ghost output_backward_wide(const Ghost& x, const Ghost& kept_logits);
  double logit_block() const;

  GhostSizes s_;
  ByteCount count_;
  std::vector<Backward> graph_;
  std::vector<SavedBytes> saved_;
  std::vector<const GhostTensor*> saved_tensors_;
  std::vector<Ghost> deferred_;
  Ghost input_, output_;  // as a stage's runner holds them between forward and backward
  Ghost positions_;
  Ghost layer_weights_;  // in backward
  Ghost residual_gradient_;
  bool has_graph_ = true, recording_ = true, deferring_ = false;
};

}  // namespace espalier::plan::internal
