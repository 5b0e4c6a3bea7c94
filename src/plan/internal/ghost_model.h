// A part of a model, run forward and backward with ghost tensors: the text of nn/ and the ops of kernels/, as far as
// tensors are made, kept and let go in it; the order of layers is the family's (spec::Depth::ghost).
#pragma once

#include <functional>
#include <vector>

#include "plan/activation_memory.h"
#include "spec/ghost.h"

namespace espalier::plan::internal {

using spec::Ghost;

// Sizes on one rank; legend as in dist/collectives.h. S: rows of the residual stream, s/cp, / tp under sequence
// parallelism.
struct GhostSizes {
  bool z_loss = false;
  bool rounds_operands = false;  // linear layers of the transformer's make a rounded copy of what they multiply
  double element = 4;            // bytes of the compute type,
  double stream_element = 4;     // and of the residual stream's between layers
  double sequence_length = 0;
  double rows = 0, tokens = 0;  // S * b; s/cp * b
  double hidden = 0;
  double tensor_ranks = 1;  // that divide heads, the MLP's width and
  double vocabulary = 0;    // the vocabulary; of this rank
  double positions = 0;     // s * b, where they are kept
  bool sequence_parallel = false, context_parallel = false, dropout = false;
  ProductKind products = ProductKind::kDirect;
  double kept_input_share = 1;  // of a recomputed range's input: 1/tp where tensor ranks divide it
  double layer_weights = 0;     // that exist only while a layer runs (ZeRO 3)
};

class GhostModel : public spec::GhostOps {
 public:
  // `model` outlives it.
  GhostModel(const spec::ModelSpec& model, const GhostSizes& sizes) : model_(model), s_(sizes), of_run_(sizes) {}

  // The forward pass of these depths; what a backward needs is kept until backward() or the end of this object.
  void forward(const DepthRange& depths, const Recompute& recompute);
  // In a deferring schedule what weight gradients need is kept until weight_grads().
  void backward(bool deferring);
  void weight_grads();

  spec::ByteCount& count() { return count_; }
  const std::vector<SavedBytes>& saved() const { return saved_; }

  Ghost look_up_words() override;
  Ghost add_positions(Ghost x) override;
  Ghost dropout(Ghost x) override;
  Ghost widen(Ghost x) override;
  Ghost norm(const Ghost& x, spec::Normalization kind, bool joins_residual) override;
  Ghost self_attention(const Ghost& x, const spec::GhostAttention& sizes) override;
  Ghost mlp(const Ghost& x, double inner, double ffn) override;
  void keep_other(Ghost x) override;
  void encode_beside(const spec::GhostBeside& sizes, const spec::GhostProgram& program) override;
  Ghost cross_attention(const Ghost& x, const spec::GhostAttention& sizes) override;
  Ghost dense_activation(Ghost x) override;
  Ghost also_first_token(Ghost x) override;
  void language_model_loss(Ghost x) override;

 private:
  using Backward = std::function<Ghost(Ghost)>;

  Ghost make(double bytes) { return std::make_shared<spec::GhostTensor>(count_, bytes); }
  Ghost make_x() { return make(s_.rows * s_.hidden * s_.element); }
  Ghost make_stream() { return make(s_.rows * s_.hidden * s_.stream_element); }
  bool is_wide() const { return s_.stream_element > s_.element; }
  void need(double bytes) { make(bytes); }  // for a moment
  void save(const char* op, const char* name, const Ghost& tensor);
  void push(Backward backward);
  Ghost run_backward(size_t down_to, Ghost gradient);

  double product_bytes(double in, double out) const;
  double weight_grad_bytes(double in, double out) const;
  Ghost linear(const Ghost& x, double in, double out);
  Ghost rounding_linear(const Ghost& x, double in, double out);
  Ghost plain_linear(const Ghost& x, double in, double out);
  Ghost gather(const Ghost& x);           // [S, ...] -> [s/cp, ...]
  Ghost sum_and_split(Ghost x);           // [s/cp, ...] -> [S, ...]
  Ghost exchange(Ghost x, double bytes);  // sequence_to_heads, heads_to_sequence
  Ghost head_norm(const Ghost& qkv, double heads);
  Ghost rotary(const Ghost& qkv);
  Ghost attention(const Ghost& qkv, double projection, double heads);
  Ghost activation(const Ghost& x, double ffn);
  Ghost add_dropout(const Ghost& x);
  const spec::Depth& depth(int64_t number) const { return model_.depths[static_cast<size_t>(number)]; }
  void set_tokens(double of_sample);
  double tokens_of_sample() const { return s_.tokens / of_run_.tokens * of_run_.sequence_length; }
  Ghost keys_and_values(const spec::GhostAttention& of_model);
  Ghost pass(const spec::GhostProgram& program, Ghost x, int64_t number);
  Ghost layer(const Ghost& x, int64_t number);
  Ghost layers(Ghost x, const DepthRange& depths);
  Ghost recomputed(const Ghost& x, const DepthRange& depths);
  Ghost receive(int64_t number);
  int64_t end_of_stack(const DepthRange& range) const;
  Ghost output_backward_panels(const Ghost& x);
  Ghost output_backward_wide(const Ghost& x);
  double logit_block() const;
  double output_product_bytes() const;
  double kept_logit_bytes() const;
  bool packs() const;

  const spec::ModelSpec& model_;
  GhostSizes s_;  // of the depth that is computed
  const GhostSizes of_run_;
  spec::ByteCount count_;
  std::vector<Backward> graph_;
  std::vector<SavedBytes> saved_;
  std::vector<const spec::GhostTensor*> saved_tensors_;
  std::vector<Ghost> deferred_;
  Ghost input_, output_;  // as a stage's runner holds them between forward and backward
  // The sequence that layers attend to, of that many tokens a sample; in backward its gradient, and that of the keys
  // and values of the layer.
  Ghost other_, other_gradient_, key_value_gradient_;
  double other_tokens_ = 0;
  Ghost positions_;
  Ghost layer_weights_;  // in backward
  Ghost residual_gradient_;
  bool sends_other_ = false;  // to the next stage
  bool has_graph_ = true, recording_ = true, deferring_ = false;
};

}  // namespace espalier::plan::internal
