// The layers of a transformer as data, for the families that stack them: their parameters, and what one of them costs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spec/ghost.h"
#include "spec/layers.h"
#include "spec/model_spec.h"
#include "spec/param_spec.h"

namespace espalier::families {

// Sizes are global. models/transformer_stack.h builds them.
struct TransformerShape {
  // Of models with several stacks: what the names of its layers begin with, and how many layers of the model precede
  // it.
  std::string prefix;
  int64_t first_layer = 0;
  int64_t num_layers = 0;
  // Of a stack that is a part of another one's layer: the depth of that layer, and the layers of that other stack, by
  // whose number the initialization goes.
  std::optional<int64_t> depth, outer_layers;
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t num_groups = 0;   // heads of keys and values, each shared by a group of queries
  int64_t kv_channels = 0;  // head size
  spec::Normalization normalization = spec::Normalization::kLayerNorm;
  double layernorm_epsilon = 1e-5;
  spec::Activation activation = spec::Activation::kGeluTanh;
  bool qk_layernorm = false;
  bool rotary = false, rotary_interleaved = false;
  bool add_bias_linear = true;  // of all linear layers
  bool add_qkv_bias = false;    // of query_key_value even without the others
  bool residual_from_layernorm = false;
  bool fp32_residual = false;     // the stream between layers is fp32, whatever the compute type
  bool cross_attention = false;   // a second attention after the first, to another sequence of the same width
  double init_method_std = 0.02;  // of the weights of its layers

  std::string layer_name(int64_t layer) const;  // "layers.3", of the stack's fourth
  int64_t depth_of(int64_t layer) const { return depth.value_or(first_layer + layer + 1); }
  // Channels of one group in query_key_value: its query heads, its key, its value.
  int64_t group_channels() const { return (num_attention_heads / num_groups + 2) * kv_channels; }
};

// Fills a family's list, depth by depth.
class ParamList {
 public:
  // What follows is used at that depth.
  void set_depth(int64_t depth) { depth_ = depth; }
  spec::ParamSpec& add(const std::string& name, std::vector<int64_t> shape, spec::Placement placement, spec::Init init,
                       bool decay);
  // Weight 1 and, of a layer norm, bias 0.
  void add_norm(const std::string& name, int64_t size, spec::Normalization kind);
  // [rows, columns], whole on every tensor rank, with a bias of 0.
  void add_dense(const std::string& name, int64_t rows, int64_t columns, spec::Init init);
  // A layer of the stack, in the order in which Megatron visits it.
  void add_layer(const TransformerShape& shape, int64_t layer);

  std::vector<spec::ParamSpec> take() { return std::move(specs_); }

 private:
  int64_t depth_ = 0;
  std::vector<spec::ParamSpec> specs_;
};

// What a layer works on, of one sample: its tokens, and the pairs of a query and a key that it sees; with
// cross-attention, the tokens of the other sequence, all of which every query sees.
struct LayerTokens {
  double tokens = 0, pairs = 0, other_tokens = 0;
};

// Multiply-adds of a layer, twice.
double layer_flops(const TransformerShape& shape, const LayerTokens& sizes);

// The same of its attention to another sequence.
struct CrossTokens {
  double queries = 0, keys = 0, pairs = 0;
};
double cross_attention_flops(const TransformerShape& shape, const CrossTokens& sizes);

// What runs in the midst of a layer, before its attention to another sequence.
using GhostStep = std::function<void(spec::GhostOps& ops)>;

spec::GhostProgram layer_ghost(const TransformerShape& shape, const GhostStep& before_cross = nullptr);

// A depth that is such a layer, without its name. Megatron counts the FLOPs of every pair of positions.
spec::Depth layer_depth(const TransformerShape& shape, const LayerTokens& sizes);

}  // namespace espalier::families
