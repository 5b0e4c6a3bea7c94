// T5 (Raffel et al. 2020) as Megatron trains it: an encoder that sees all of its sequence, a decoder that attends to
// it, and one table of words for both and for the output. Its shape, and the list of its parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/family.h"
#include "config/run_config.h"
#include "data/sentence_sample.h"
#include "families/transformer.h"
#include "spec/model_spec.h"

namespace espalier::families {

// Learned: a vector for each place, from one table for encoder and decoder. Relative: a bias of attention scores by
// distance, from a table for each of them, which all of its layers share.
enum class T5Positions { kLearned, kRelative };

// Field names are those of Megatron's options where there is one. Sizes are global.
struct T5Config {
  int64_t num_layers = 0;          // of the encoder
  int64_t decoder_num_layers = 0;  // the same number by default
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;  // 4 * hidden_size unless given
  int64_t num_attention_heads = 0;
  int64_t kv_channels = 0;  // head size; hidden_size / num_attention_heads unless given
  T5Positions positions = T5Positions::kLearned;
  int64_t max_position_embeddings = 0;            // of learned positions; others have no table
  int64_t relative_attention_num_buckets = 32;    // of relative ones: rows of the table,
  int64_t relative_attention_max_distance = 128;  // of which the last is for all that is farther
  int64_t vocab_size = 0;                         // of the tokenizer
  int64_t padded_vocab_size = 0;                  // rows of the embedding; fixed when the model is created
  spec::Activation activation = spec::Activation::kGeluTanh;
  spec::Normalization normalization = spec::Normalization::kLayerNorm;
  bool add_bias_linear = true;           // of all linear layers, and of the logits
  bool tie_output = true;                // the output layer uses the word embedding
  bool scale_tied_output = false;        // what it multiplies is divided by sqrt(hidden_size) first
  bool scale_attention = true;           // scores are divided by sqrt(kv_channels)
  bool residual_from_layernorm = false;  // --apply-residual-connection-post-layernorm
  double layernorm_epsilon = 1e-5;
  double init_method_std = 0.02;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;

  int64_t total_layers() const { return num_layers + decoder_num_layers; }
  int64_t decoder_depth() const { return num_layers + 1; }  // of the decoder's first layer, and of its embedding
  int64_t last_depth() const { return total_layers() + 1; }
  TransformerShape encoder() const;
  TransformerShape decoder() const;
  bool operator==(const T5Config&) const = default;
};

// The parameters in order of depth. Names: docs/checkpoint-format.md.
std::vector<spec::ParamSpec> t5_params(const T5Config& config);

// Parameters, depths and what they cost for samples of these lengths. Depths: the encoder's embedding, its layers (the
// last with the encoder's final norm), the decoder's layers (the first with the decoder's embedding), the head.
spec::ModelSpec t5_model_spec(const T5Config& config, int64_t encoder_length, int64_t decoder_length);

// What the options of a run fill (config::RunConfig::model).
struct T5Settings {
  T5Config shape;
  std::string activation;  // empty: gelu, as the next two say
  bool gelu_is_fused = true, openai_gelu = false;
  std::optional<int64_t> split_rank;  // pipeline stages of the encoder; half of them unless given
  int64_t decoder_seq_length = 0;
  double mask_probability = 0.15, short_probability = 0.1;
};

const config::Family& t5_family();

// The model of a resolved run, with the run's vocabulary where that is known.
T5Config t5_config(const config::RunConfig& run);
T5Config t5_config(const config::FamilyConfig& settings, const spec::Vocabulary& vocabulary);

// The options that make such a model, and of samples what options must say; the vocabulary is none of them.
T5Settings t5_settings(const T5Config& model, int64_t decoder_length);

// How the run's samples are made; the vocabulary is the caller's to add.
data::SentenceSampleOptions t5_samples(const config::RunConfig& run);

}  // namespace espalier::families
