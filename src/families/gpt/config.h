// GPT: its shape, and the list of its parameters. GPT-2, BLOOM and Llama are settings of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/family.h"
#include "config/run_config.h"
#include "data/decoder_masks.h"
#include "data/objective.h"
#include "families/mup.h"
#include "families/transformer.h"
#include "spec/layers.h"
#include "spec/param_spec.h"
#include "spec/rotary.h"

namespace espalier::families {

enum class PositionEmbedding { kLearned, kAlibi, kRotary, kNone };

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
  spec::RopeScaling rope_scaling;
  int64_t window_size = 0;  // a query sees the last `window_size` keys, itself included; 0: all before it
  spec::Normalization normalization = spec::Normalization::kLayerNorm;
  bool qk_layernorm = false;       // RMS norm of every query and key head before it is rotated (Qwen3)
  bool add_bias_linear = true;     // of all linear layers but the output layer, which has none
  bool add_qkv_bias = false;       // of query_key_value even without the others (Qwen2)
  bool embed_layernorm = false;    // a layer norm with bias whatever `normalization` says
  bool tie_output = true;          // the output layer uses the word embedding
  double attn_logit_soft_cap = 0;  // c: scaled attention scores become c tanh(score / c); 0: off
  double logit_soft_cap = 0;       // c: logits become c tanh(logits / c); 0: off
  spec::Activation activation = spec::Activation::kGeluTanh;
  bool residual_from_layernorm = false;  // --apply-residual-connection-post-layernorm
  bool fp32_residual = false;            // the stream between layers is fp32, whatever the compute type
  bool whole_prompt = false;             // the tokens of a prompt all see each other, as the objective has taught it
  double layernorm_epsilon = 1e-5;       // the embedding's layer norm always has 1e-5, as in Megatron
  double init_method_std = 0.02;         // of the base model's layers, with muP
  Mup mup;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;

  int64_t num_groups() const { return num_query_groups == 0 ? num_attention_heads : num_query_groups; }
  // Channels of one group in query_key_value: its query heads, its key, its value.
  int64_t group_channels() const { return (num_attention_heads / num_groups() + 2) * kv_channels; }
  TransformerShape layers() const;
  double width() const { return mup.width(hidden_size); }
  spec::Rotary rotary() const {
    return {.head_size = kv_channels,
            .base = rotary_base,
            .percent = rotary_percent,
            .scaling = rope_scaling,
            .max_position_embeddings = max_position_embeddings};
  }
  int64_t rotary_size() const { return rotary().size(); }
  bool operator==(const GptConfig&) const = default;
};

// The parameters in the order in which Megatron visits them: word embedding, its norm, positions, the layers, the
// final norm, and the output layer when it is not tied. Names: docs/checkpoint-format.md. A gated MLP has both of its
// halves in dense_h_to_4h: first the activated one (gate), then the other (up).
std::vector<spec::ParamSpec> gpt_params(const GptConfig& config);

// Parameters, depths and what they cost for samples of that length; ids, labels, positions and the masks wait for their
// step.
spec::ModelSpec gpt_model_spec(const GptConfig& config, int64_t sequence_length,
                               const data::RowRules& rows = data::RowRules());

// Spellings from which resolving gets fields of the shape. Where several mean the same, it leaves only the first of
// them set, so that a run has one description.
struct GptOptions {
  std::optional<int64_t> num_key_value_heads, num_query_groups;
  bool group_query_attention = false;
  bool use_rotary = false, no_position_embedding = false;
  std::string window_size;  // keys, or Megatron's "LEFT,RIGHT"
  bool use_rope_scaling = false;
  std::optional<double> interpolation_factor;
  std::vector<std::string> short_factors, long_factors;
  bool untie_output = false;
  std::string activation;  // empty: gelu, as the last two say
  std::string glu_activation;
  bool swiglu = false, squared_relu = false, gelu_is_fused = true, openai_gelu = false;
};

// What the options of a run fill (config::RunConfig::model).
struct GptSettings {
  GptConfig shape;
  GptOptions options;
  data::Objective objective;
};

const config::Family& gpt_family();

// --objective and the options that go with it, also for programs that show samples. The objective outlives the table.
void add_objective_rows(OptionTable& table, data::Objective& objective);
// Problems of those rows, and of --reset-attention-mask, which the table has too.
void check_objective_rows(const OptionTable& table, const data::Objective& objective, Problems& problems);

// The model of a resolved run, with the run's vocabulary where that is known.
GptConfig gpt_config(const config::RunConfig& run);
GptConfig gpt_config(const config::FamilyConfig& settings, const spec::Vocabulary& vocabulary);

// What the model of a resolved run is trained on; the end-of-document token is the caller's to add.
data::RowRules row_rules(const config::RunConfig& run);

// The options that make such a model; the vocabulary is none of the model's options.
GptSettings gpt_settings(const GptConfig& model);

}  // namespace espalier::families
