#include "families/gpt/config.h"

#include <cmath>

namespace espalier::families {

using spec::Init;
using spec::Normalization;
using spec::Placement;

TransformerShape GptConfig::layers() const {
  return {.num_layers = num_layers,
          .hidden_size = hidden_size,
          .ffn_hidden_size = ffn_hidden_size,
          .num_attention_heads = num_attention_heads,
          .num_groups = num_groups(),
          .kv_channels = kv_channels,
          .normalization = normalization,
          .layernorm_epsilon = layernorm_epsilon,
          .activation = activation,
          .qk_layernorm = qk_layernorm,
          .rotary = position_embedding == PositionEmbedding::kRotary,
          .rotary_interleaved = rotary_interleaved,
          .add_bias_linear = add_bias_linear,
          .add_qkv_bias = add_qkv_bias,
          .residual_from_layernorm = residual_from_layernorm,
          .fp32_residual = fp32_residual,
          .init_method_std = init_method_std / std::sqrt(width())};
}

std::vector<spec::ParamSpec> gpt_params(const GptConfig& config) {
  ParamList params;
  const int64_t hidden = config.hidden_size;
  const Init normal = Init::normal(config.init_method_std);
  const Placement vocabulary = Placement::split(0, {config.padded_vocab_size});
  spec::ParamSpec& words =
      params.add("word_embeddings.weight", {config.padded_vocab_size, hidden}, vocabulary, normal, true);
  if (config.tie_output) words.other_depths = {config.num_layers + 1};
  if (config.embed_layernorm) params.add_norm("word_embeddings.norm", hidden, Normalization::kLayerNorm);
  if (config.position_embedding == PositionEmbedding::kLearned)
    params.add("position_embeddings.weight", {config.max_position_embeddings, hidden}, Placement::replicated(), normal,
               true);
  const TransformerShape layers = config.layers();
  for (int64_t layer = 0; layer < config.num_layers; ++layer) params.add_layer(layers, layer);
  params.set_depth(config.num_layers + 1);
  params.add_norm("final_layernorm", hidden, config.normalization);
  if (!config.tie_output) params.add("lm_head.weight", {config.padded_vocab_size, hidden}, vocabulary, normal, true);
  std::vector<spec::ParamSpec> list = params.take();
  for (spec::ParamSpec& param : list) param.width = config.width();
  return list;
}

}  // namespace espalier::families
