// gpt2: GPT-2 (Radford et al. 2019).
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "convert/gpt/internal/hf_gpt.h"
#include "convert/hf/config.h"
#include "convert/hf/internal/activation_names.h"

namespace espalier::convert {
namespace {

using families::GptConfig;

void read_gpt2(ConfigReader& reader, const HfTensors&, HfModel& model) {
  GptConfig config = read_common_gpt(reader, model, /*is_tied_unless_said=*/true);
  check_architectures(reader, {"GPT2LMHeadModel"}, {"GPT2Model"});
  config.num_layers = reader.required_size({"n_layer", "num_hidden_layers"}, kMostLayers);
  config.hidden_size = reader.required_size({"n_embd", "hidden_size"}, kMostHidden);
  config.num_attention_heads = reader.required_size({"n_head", "num_attention_heads"}, kMostHeads);
  config.max_position_embeddings = reader.size({"n_positions", "max_position_embeddings"}).value_or(1024);
  config.ffn_hidden_size = reader.size({"n_inner"}, kMostFfn).value_or(4 * config.hidden_size);
  config.layernorm_epsilon = reader.number("layer_norm_epsilon", 1e-5, 0, 1);
  config.activation = read_activation(reader, "activation_function", "gelu_new", /*gated=*/false);
  config.hidden_dropout = reader.number("resid_pdrop", 0.1, 0, 1);
  config.attention_dropout = reader.number("attn_pdrop", 0.1, 0, 1);
  const double embedding_dropout = reader.number("embd_pdrop", config.hidden_dropout, 0, 1);
  if (embedding_dropout != config.hidden_dropout)
    model.notes.push_back(concat("embd_pdrop ", format_shortest(embedding_dropout),
                                 ": the embedding's dropout is here resid_pdrop, ",
                                 format_shortest(config.hidden_dropout)));
  reader.require("scale_attn_weights", true, "attention scores are always divided by the root of the head size here");
  reader.require("scale_attn_by_inverse_layer_idx", false, "attention scores do not depend on the layer's number here");
  reader.ignore({"reorder_and_upcast_attn", "n_ctx", "summary_type", "summary_use_proj", "summary_activation",
                 "summary_proj_to_labels", "summary_first_dropout"});
  read_gpt_heads(reader, config);
  set_gpt(config, model);
}

std::vector<std::string> obstacles_of_gpt2(const ModelConfig& model) {
  const GptConfig config = gpt_of(model);
  Reasons reasons;
  check_old_style_gpt(config, reasons);
  reasons.unless(config.position_embedding == families::PositionEmbedding::kLearned, "positions are learned");
  reasons.unless(!config.embed_layernorm, "no norm follows the embedding");
  reasons.unless(!config.residual_from_layernorm, "residual branches start before the norm");
  reasons.unless(!is_gated(config.activation) && name_of(config.activation), "the MLP is not gated");
  return reasons.list;
}

void write_gpt2(const ModelConfig& model, nlohmann::ordered_json& json) {
  const GptConfig config = gpt_of(model);
  erase_old_spellings(json);
  write_common_gpt(config, json);
  json["n_layer"] = config.num_layers;
  json["n_embd"] = config.hidden_size;
  json["n_head"] = config.num_attention_heads;
  json["n_positions"] = config.max_position_embeddings;
  json["n_inner"] = config.ffn_hidden_size;
  json["layer_norm_epsilon"] = config.layernorm_epsilon;
  json["activation_function"] = *name_of(config.activation);
  json["resid_pdrop"] = json["embd_pdrop"] = config.hidden_dropout;
  json["attn_pdrop"] = config.attention_dropout;
  json["scale_attn_weights"] = true;
}

// Conv1D: weights are stored [in, out].
void map_conv(HfMapBuilder& builder, const std::string& name, const std::string& theirs) {
  const std::vector<int64_t> shape = builder.our_shape(name + ".weight");
  TensorMap& map = builder.map();
  map.add(transposed(map, builder.ours(name + ".weight"), map.theirs.add(theirs + ".weight", {shape[1], shape[0]})));
  builder.same(name + ".bias", theirs + ".bias");
}

// c_attn has all queries, then all keys, then all values.
void map_fused_conv(HfMapBuilder& builder, const GptConfig& config, const std::string& theirs) {
  const int64_t heads = config.num_attention_heads, head = config.kv_channels, hidden = config.hidden_size;
  TensorMap& map = builder.map();
  const size_t weight = builder.ours("self_attention.query_key_value.weight"),
               bias = builder.ours("self_attention.query_key_value.bias");
  const size_t their_weight = map.theirs.add(theirs + ".weight", {hidden, 3 * hidden});
  const size_t their_bias = map.theirs.add(theirs + ".bias", {3 * hidden});
  for (int64_t part = 0; part < 3; ++part) {
    map.add({.sizes = {heads, head, hidden},
             .ours = {weight, part * head * hidden, {3 * head * hidden, hidden, 1}},
             .theirs = {their_weight, part * hidden, {head, 1, 3 * hidden}}});
    map.add({.sizes = {heads, head},
             .ours = {bias, part * head, {3 * head, 1}},
             .theirs = {their_bias, part * hidden, {head, 1}}});
  }
}

TensorMap map_gpt2(const ModelConfig& model, const HfTensors& theirs) {
  const GptConfig config = gpt_of(model);
  HfMapBuilder builder(model, theirs);
  const std::string base = prefix_of_base(theirs, "transformer.", "wte.weight");
  builder.add_vocabulary("word_embeddings.weight", base + "wte.weight");
  builder.same("position_embeddings.weight", base + "wpe.weight");
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string h = concat(base, "h.", layer, ".");
    builder.set_prefix(config.layers().layer_name(layer) + ".");
    builder.same_module("input_layernorm", h + "ln_1");
    builder.same_module("post_attention_layernorm", h + "ln_2");
    map_fused_conv(builder, config, h + "attn.c_attn");
    map_conv(builder, "self_attention.dense", h + "attn.c_proj");
    map_conv(builder, "mlp.dense_h_to_4h", h + "mlp.c_fc");
    map_conv(builder, "mlp.dense_4h_to_h", h + "mlp.c_proj");
  }
  builder.set_prefix("");
  builder.same_module("final_layernorm", base + "ln_f");
  map_gpt_head(builder, config, theirs);
  return builder.take();
}

}  // namespace

HfCodec gpt2_codec() {
  return {.model_type = "gpt2",
          .family = &families::gpt_family(),
          .read = read_gpt2,
          .obstacles = obstacles_of_gpt2,
          .architecture = [](const ModelConfig&) { return "GPT2LMHeadModel"; },
          .write = write_gpt2,
          .map = map_gpt2,
          .leaves_out = is_gpt_buffer};
}

}  // namespace espalier::convert
