#include "families/gpt/config.h"

#include <cmath>
#include <numeric>

namespace espalier::families {

using spec::Init;
using spec::Normalization;
using spec::ParamSpec;
using spec::Placement;

std::vector<ParamSpec> gpt_params(const GptConfig& config) {
  std::vector<ParamSpec> specs;
  int64_t depth = 0;
  const int64_t hidden = config.hidden_size;
  const Init normal = Init::normal(config.init_method_std);
  const Init scaled_normal =
      Init::normal(config.init_method_std / std::sqrt(2.0 * static_cast<double>(config.num_layers)));

  const auto add = [&](const std::string& name, std::vector<int64_t> shape, Placement placement, Init init,
                       bool decay) {
    specs.push_back({.name = name,
                     .shape = std::move(shape),
                     .tensor_placement = std::move(placement),
                     .depth = depth,
                     .init = init,
                     .weight_decay = decay});
  };
  const auto add_norm = [&](const std::string& name, Normalization kind) {
    add(name + ".weight", {hidden}, Placement::replicated(), Init::constant(1), false);
    if (kind == Normalization::kLayerNorm)
      add(name + ".bias", {hidden}, Placement::replicated(), Init::constant(0), false);
  };
  // A column-parallel linear layer splits its rows (and bias) over tensor ranks, a row-parallel one its columns.
  const auto add_column = [&](const std::string& name, const std::vector<int64_t>& segments, int64_t unit, bool bias) {
    const int64_t rows = std::accumulate(segments.begin(), segments.end(), int64_t{0});
    add(name + ".weight", {rows, hidden}, Placement::split(0, segments, unit), normal, true);
    if (bias) add(name + ".bias", {rows}, Placement::split(0, segments, unit), Init::constant(0), false);
  };
  const auto add_row = [&](const std::string& name, int64_t columns, int64_t unit) {
    add(name + ".weight", {hidden, columns}, Placement::split(1, {columns}, unit), scaled_normal, true);
    if (config.add_bias_linear) add(name + ".bias", {hidden}, Placement::replicated(), Init::constant(0), false);
  };
  // Every tensor rank has it for its own heads.
  const auto add_head_norm = [&](const std::string& name) {
    add(name + ".weight", {config.kv_channels}, Placement::replicated(), Init::constant(1), false);
    specs.back().use_is_split = true;
  };

  const Placement vocabulary = Placement::split(0, {config.padded_vocab_size});
  add("word_embeddings.weight", {config.padded_vocab_size, hidden}, vocabulary, normal, true);
  if (config.tie_output) specs.back().other_depths = {config.num_layers + 1};
  if (config.embed_layernorm) add_norm("word_embeddings.norm", Normalization::kLayerNorm);
  if (config.position_embedding == PositionEmbedding::kLearned)
    add("position_embeddings.weight", {config.max_position_embeddings, hidden}, Placement::replicated(), normal, true);

  const int64_t projection = config.num_attention_heads * config.kv_channels;
  const bool gated = spec::is_gated(config.activation);
  const std::vector<int64_t> inner(gated ? 2 : 1, config.ffn_hidden_size);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    depth = layer + 1;
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    add_norm(prefix + "input_layernorm", config.normalization);
    add_column(prefix + "self_attention.query_key_value", {config.num_groups() * config.group_channels()},
               config.group_channels(), config.add_bias_linear || config.add_qkv_bias);
    if (config.qk_layernorm) {
      add_head_norm(prefix + "self_attention.query_norm");
      add_head_norm(prefix + "self_attention.key_norm");
    }
    add_row(prefix + "self_attention.dense", projection, projection / config.num_groups());
    add_norm(prefix + "post_attention_layernorm", config.normalization);
    add_column(prefix + "mlp.dense_h_to_4h", inner, 1, config.add_bias_linear);
    add_row(prefix + "mlp.dense_4h_to_h", config.ffn_hidden_size, 1);
  }

  depth = config.num_layers + 1;
  add_norm("final_layernorm", config.normalization);
  if (!config.tie_output) add("lm_head.weight", {config.padded_vocab_size, hidden}, vocabulary, normal, true);
  return specs;
}

}  // namespace espalier::families
