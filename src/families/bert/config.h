// BERT as Megatron trains it: its shape, and the list of its parameters.
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

// Field names are those of Megatron's options where there is one. Sizes are global.
struct BertConfig {
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;  // 4 * hidden_size unless given
  int64_t num_attention_heads = 0;
  int64_t kv_channels = 0;  // head size; hidden_size / num_attention_heads unless given
  int64_t max_position_embeddings = 0;
  int64_t vocab_size = 0;                                     // of the tokenizer
  int64_t padded_vocab_size = 0;                              // rows of the embedding; fixed when the model is created
  spec::Activation activation = spec::Activation::kGeluTanh;  // of the layers
  spec::Activation head_activation = spec::Activation::kGeluErf;  // of the masked-LM head
  bool residual_from_layernorm = false;                           // --apply-residual-connection-post-layernorm
  double layernorm_epsilon = 1e-5;
  double init_method_std = 0.02;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  bool binary_head = true;     // pooler and the head that predicts the order of two halves
  int64_t num_tokentypes = 2;  // 0: no token types; the halves of a sample have 0 and 1

  TransformerShape layers() const;
  bool operator==(const BertConfig&) const = default;
};

// The parameters in order of depth. Names: docs/checkpoint-format.md.
std::vector<spec::ParamSpec> bert_params(const BertConfig& config);

// Parameters, depths and what they cost for samples of that length.
spec::ModelSpec bert_model_spec(const BertConfig& config, int64_t sequence_length);

// What the options of a run fill (config::RunConfig::model).
struct BertSettings {
  BertConfig shape;
  bool gelu_is_fused = true, openai_gelu = false;
  std::optional<int64_t> num_tokentypes;
  std::string position_type = "absolute", normalization = "layernorm";  // options with one choice
  double mask_probability = 0.15, short_probability = 0.1;
};

const config::Family& bert_family();

// The model of a resolved run, with the run's vocabulary where that is known.
BertConfig bert_config(const config::RunConfig& run);
BertConfig bert_config(const config::FamilyConfig& settings, const spec::Vocabulary& vocabulary);

// The options that make such a model, whose head has the exact gelu or whose layers have the head's; the vocabulary is
// none of the model's options.
BertSettings bert_settings(const BertConfig& model);

// How the run's samples are made; the vocabulary is the caller's to add.
data::SentenceSampleOptions bert_samples(const config::RunConfig& run);

}  // namespace espalier::families
