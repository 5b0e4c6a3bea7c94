// The GPT family: its shape, and the list of its parameters. BLOOM and GPT-2 are settings of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/param_spec.h"

namespace espalier::spec {

enum class PositionEmbedding { kLearned, kAlibi };
enum class Activation { kGeluTanh, kGeluErf };

// Field names are those of Megatron's options where there is one. Sizes are global.
struct GptConfig {
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;  // 4 * hidden_size unless given
  int64_t num_attention_heads = 0;
  int64_t kv_channels = 0;  // head size; hidden_size / num_attention_heads unless given
  int64_t max_position_embeddings = 0;
  int64_t vocab_size = 0;         // of the tokenizer
  int64_t padded_vocab_size = 0;  // rows of the embedding; fixed when the model is created
  PositionEmbedding position_embedding = PositionEmbedding::kLearned;
  bool embed_layernorm = false;
  bool tie_output = true;  // the output layer uses the word embedding
  Activation activation = Activation::kGeluTanh;
  bool residual_from_layernorm = false;  // --apply-residual-connection-post-layernorm
  double layernorm_epsilon = 1e-5;       // the embedding's layer norm always has 1e-5, as in Megatron
  double init_method_std = 0.02;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;

  bool operator==(const GptConfig&) const = default;
};

// The parameters in the order in which Megatron visits them: word embedding, its norm, positions, the layers, the
// final norm, and the output layer when it is not tied. Names: docs/checkpoint-format.md.
std::vector<ParamSpec> gpt_params(const GptConfig& config);

// Rows of the embedding for a tokenizer of `vocab_size`: rounded up to a multiple of divisible_by * tensor_parallel.
int64_t padded_vocab_size(int64_t vocab_size, int64_t divisible_by, int64_t tensor_parallel);

}  // namespace espalier::spec
