#include "spec/gpt.h"

#include <cmath>

namespace espalier::spec {

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
  const auto add_norm = [&](const std::string& name) {
    add(name + ".weight", {hidden}, Placement::replicated(), Init::constant(1), false);
    add(name + ".bias", {hidden}, Placement::replicated(), Init::constant(0), false);
  };
  // A column-parallel linear layer splits its rows (and bias) over tensor ranks, a row-parallel one its columns.
  const auto add_column = [&](const std::string& name, int64_t rows, int64_t unit) {
    add(name + ".weight", {rows, hidden}, Placement::split(0, {rows}, unit), normal, true);
    add(name + ".bias", {rows}, Placement::split(0, {rows}, unit), Init::constant(0), false);
  };
  const auto add_row = [&](const std::string& name, int64_t columns, int64_t unit) {
    add(name + ".weight", {hidden, columns}, Placement::split(1, {columns}, unit), scaled_normal, true);
    add(name + ".bias", {hidden}, Placement::replicated(), Init::constant(0), false);
  };

  const Placement vocabulary = Placement::split(0, {config.padded_vocab_size});
  add("word_embeddings.weight", {config.padded_vocab_size, hidden}, vocabulary, normal, true);
  specs.back().tied_to_output = config.tie_output;
  if (config.embed_layernorm) add_norm("word_embeddings.norm");
  if (config.position_embedding == PositionEmbedding::kLearned)
    add("position_embeddings.weight", {config.max_position_embeddings, hidden}, Placement::replicated(), normal, true);

  const int64_t projection = config.num_attention_heads * config.kv_channels;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    depth = layer + 1;
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    add_norm(prefix + "input_layernorm");
    add_column(prefix + "self_attention.query_key_value", 3 * projection, 3 * config.kv_channels);
    add_row(prefix + "self_attention.dense", projection, config.kv_channels);
    add_norm(prefix + "post_attention_layernorm");
    add_column(prefix + "mlp.dense_h_to_4h", config.ffn_hidden_size, 1);
    add_row(prefix + "mlp.dense_4h_to_h", config.ffn_hidden_size, 1);
  }

  depth = config.num_layers + 1;
  add_norm("final_layernorm");
  if (!config.tie_output) add("lm_head.weight", {config.padded_vocab_size, hidden}, vocabulary, normal, true);
  return specs;
}

int64_t padded_vocab_size(int64_t vocab_size, int64_t divisible_by, int64_t tensor_parallel) {
  const int64_t multiple = divisible_by * tensor_parallel;
  return (vocab_size + multiple - 1) / multiple * multiple;
}

}  // namespace espalier::spec
