// The GPT family: its shape, and the list of its parameters. GPT-2, BLOOM and Llama are settings of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/param_spec.h"

namespace espalier::spec {

enum class PositionEmbedding { kLearned, kAlibi, kRotary, kNone };
enum class Normalization { kLayerNorm, kRmsNorm };
// Those from kSwiglu on are gated: activation(gate) * up (Shazeer 2020), with silu, erf gelu, tanh gelu, relu and none.
enum class Activation { kGeluTanh, kGeluErf, kRelu, kSquaredRelu, kSilu, kSwiglu, kGeglu, kGegluTanh, kReglu, kLiglu };

bool is_gated(Activation activation);

// How the frequencies of rotary positions are changed for sequences longer than those of the first training.
struct RopeScaling {
  enum class Kind {
    kNone,
    kLinear,   // all divided by factor
    kLlama3,   // the low ones divided by factor, between two wavelengths gradually (Llama 3.1)
    kYarn,     // Peng et al. 2023
    kLongRope  // each divided by a factor of its own (Ding et al. 2024)
  };
  Kind kind = Kind::kNone;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // kLlama3
  double beta_fast = 32, beta_slow = 1;              // kYarn
  int64_t original_max_position_embeddings = 0;      // kLlama3, kYarn, kLongRope
  std::vector<double> short_factors, long_factors;   // kLongRope: one for each pair of rotated channels
  double attention_factor = 0;  // kYarn, kLongRope: multiplies rotated queries and keys; 0: what the method derives

  bool operator==(const RopeScaling&) const = default;
};

// Field names are those of Megatron's options where there is one. Sizes are global.
struct GptConfig {
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;  // 4 * hidden_size unless given
  int64_t num_attention_heads = 0;
  int64_t num_query_groups = 0;  // heads of keys and values, each shared by a group of queries; 0: one for each head
  int64_t kv_channels = 0;       // head size; hidden_size / num_attention_heads unless given
  int64_t max_position_embeddings = 0;
  int64_t vocab_size = 0;         // of the tokenizer
  int64_t padded_vocab_size = 0;  // rows of the embedding; fixed when the model is created
  PositionEmbedding position_embedding = PositionEmbedding::kLearned;
  double rotary_base = 10000;
  double rotary_percent = 1;        // share of the channels of a head that rotates, from the first on
  bool rotary_interleaved = false;  // pairs are neighbours (2i, 2i + 1), not (i, i + half)
  RopeScaling rope_scaling;
  int64_t window_size = 0;  // a query sees the last `window_size` keys, itself included; 0: all before it
  Normalization normalization = Normalization::kLayerNorm;
  bool qk_layernorm = false;     // RMS norm of every query and key head before it is rotated (Qwen3)
  bool add_bias_linear = true;   // of all linear layers but the output layer, which has none
  bool add_qkv_bias = false;     // of query_key_value even without the others (Qwen2)
  bool embed_layernorm = false;  // a layer norm with bias whatever `normalization` says
  bool tie_output = true;        // the output layer uses the word embedding
  Activation activation = Activation::kGeluTanh;
  bool residual_from_layernorm = false;  // --apply-residual-connection-post-layernorm
  double layernorm_epsilon = 1e-5;       // the embedding's layer norm always has 1e-5, as in Megatron
  double init_method_std = 0.02;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;

  int64_t num_groups() const { return num_query_groups == 0 ? num_attention_heads : num_query_groups; }
  // Channels of one group in query_key_value: its query heads, its key, its value.
  int64_t group_channels() const { return (num_attention_heads / num_groups() + 2) * kv_channels; }
  int64_t rotary_size() const { return static_cast<int64_t>(static_cast<double>(kv_channels) * rotary_percent); }
  bool operator==(const GptConfig&) const = default;
};

// The parameters in the order in which Megatron visits them: word embedding, its norm, positions, the layers, the
// final norm, and the output layer when it is not tied. Names: docs/checkpoint-format.md. A gated MLP has both of its
// halves in dense_h_to_4h: first the activated one (gate), then the other (up).
std::vector<ParamSpec> gpt_params(const GptConfig& config);

// Rows of the embedding for a tokenizer of `vocab_size`: rounded up to a multiple of divisible_by * tensor_parallel.
int64_t padded_vocab_size(int64_t vocab_size, int64_t divisible_by, int64_t tensor_parallel);

}  // namespace espalier::spec
