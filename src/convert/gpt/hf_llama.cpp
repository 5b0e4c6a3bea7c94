// llama and similar models: gated MLPs, rotary positions, RMS norms.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "convert/gpt/internal/hf_gpt.h"
#include "convert/gpt/internal/rope.h"
#include "convert/hf/config.h"
#include "convert/hf/internal/activation_names.h"

namespace espalier::convert {
namespace {

using families::GptConfig;

// What transformers assumes where a key is absent.
struct LlamaDefaults {
  int64_t max_positions = 0;
  double epsilon = 1e-6;
  int64_t groups = 0;  // 0: as many as heads
  int64_t head_size = 0;
  int64_t window = 0;
};

// One row for each kind, in the order of LlamaKind.
struct LlamaRow {
  LlamaKind kind;
  const char* model_type;
  const char* name;  // that its classes begin with
  LlamaDefaults defaults;
};
const LlamaRow& row_of(LlamaKind kind) {
  static const std::vector<LlamaRow> rows = {
      {LlamaKind::kLlama, "llama", "Llama", {.max_positions = 2048}},
      {LlamaKind::kMistral, "mistral", "Mistral", {.max_positions = 131072, .groups = 8, .window = 4096}},
      {LlamaKind::kQwen2, "qwen2", "Qwen2", {.max_positions = 32768, .groups = 32, .window = 4096}},
      {LlamaKind::kQwen3, "qwen3", "Qwen3", {.max_positions = 32768, .groups = 32, .head_size = 128, .window = 4096}},
      {LlamaKind::kPhi3, "phi3", "Phi3", {.max_positions = 4096, .epsilon = 1e-5}},
  };
  return rows[static_cast<size_t>(kind)];
}

// Biases: all linear layers, query, key and value alone, or none.
void read_biases(ConfigReader& reader, LlamaKind kind, GptConfig& config) {
  config.add_bias_linear = false;
  if (kind == LlamaKind::kQwen2) config.add_qkv_bias = true;
  reader.require("lm_head_bias", false, "the output layer has no bias here");
  if (kind != LlamaKind::kLlama) {
    reader.require("attention_bias", false, "a bias of o_proj comes only together with those of the MLP here");
    reader.require("mlp_bias", false, "biases of the MLP come only together with those of attention here");
    return;
  }
  const bool attention = reader.flag("attention_bias", false), mlp = reader.flag("mlp_bias", false);
  if (attention != mlp)
    reader.problem(attention ? "attention_bias" : "mlp_bias",
                   "true is only supported together with the other of attention_bias and mlp_bias");
  config.add_bias_linear = attention && mlp;
}

// The one window of all layers, 0 for none.
int64_t window_of_layers(ConfigReader& reader, const GptConfig& config, int64_t otherwise) {
  const int64_t window = reader.size({"sliding_window"}).value_or(reader.is_null("sliding_window") ? 0 : otherwise);
  const bool uses = reader.flag("use_sliding_window", false) && window > 0;
  const auto first = static_cast<int64_t>(reader.number("max_window_layers", 28, 0, 1e9));
  std::vector<std::string> types = reader.texts("layer_types");
  if (types.empty() && uses) {
    if (first == 0) return window;
    if (first >= config.num_layers) return 0;
    reader.problem("max_window_layers", first, " of ", config.num_layers,
                   " layers would see all; here all layers have one window");
    return 0;
  }
  const bool all_full = std::count(types.begin(), types.end(), "full_attention") == static_cast<int64_t>(types.size());
  const bool all_sliding =
      std::count(types.begin(), types.end(), "sliding_attention") == static_cast<int64_t>(types.size());
  if (!all_full && !(all_sliding && uses))
    reader.problem(
        "layer_types",
        "only the same for all layers is supported: full_attention, or sliding_attention with use_sliding_window");
  return all_full ? 0 : window;
}

void read_window(ConfigReader& reader, LlamaKind kind, GptConfig& config) {
  const int64_t otherwise = row_of(kind).defaults.window;
  if (kind == LlamaKind::kQwen2 || kind == LlamaKind::kQwen3)
    config.window_size = window_of_layers(reader, config, otherwise);
  else if (kind == LlamaKind::kMistral || kind == LlamaKind::kPhi3)
    config.window_size = reader.size({"sliding_window"}).value_or(reader.is_null("sliding_window") ? 0 : otherwise);
}

void read_llama_like(LlamaKind kind, ConfigReader& reader, HfModel& model) {
  const LlamaRow& row = row_of(kind);
  const LlamaDefaults& defaults = row.defaults;
  GptConfig config = read_common_gpt(reader, model, /*is_tied_unless_said=*/false);
  check_architectures(reader, {concat(row.name, "ForCausalLM")}, {concat(row.name, "Model")});
  config.num_layers = reader.required_size({"num_hidden_layers"}, kMostLayers);
  config.hidden_size = reader.required_size({"hidden_size"}, kMostHidden);
  config.ffn_hidden_size = reader.required_size({"intermediate_size"}, kMostFfn);
  config.num_attention_heads = reader.required_size({"num_attention_heads"}, kMostHeads);
  const int64_t groups =
      reader.is_null("num_key_value_heads") || defaults.groups == 0 ? config.num_attention_heads : defaults.groups;
  config.num_query_groups = reader.size({"num_key_value_heads"}, kMostHeads).value_or(groups);
  config.kv_channels =
      reader.size({"head_dim"}, kMostHeads).value_or(reader.is_null("head_dim") ? 0 : defaults.head_size);
  config.max_position_embeddings = reader.size({"max_position_embeddings"}).value_or(defaults.max_positions);
  config.normalization = spec::Normalization::kRmsNorm;
  config.layernorm_epsilon = reader.number("rms_norm_eps", defaults.epsilon, 0, 1);
  config.activation = read_activation(reader, "hidden_act", "silu", /*gated=*/true);
  config.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  config.hidden_dropout = kind == LlamaKind::kPhi3 ? reader.number("resid_pdrop", 0, 0, 1) : 0;
  config.qk_layernorm = kind == LlamaKind::kQwen3;
  read_biases(reader, kind, config);
  read_window(reader, kind, config);
  read_gpt_heads(reader, config);
  read_rope(reader, kind, config);
  reader.require("use_mrope", false, "positions have one dimension here");
  reader.require("rope_interleaved", false, "rotated pairs are (i, i + half) in these families");
  // The last two are Phi-4-mini's, and no code reads them.
  reader.ignore({"pretraining_tp", "embd_pdrop", "is_llama_config", "full_attn_mod", "interpolate_factor"});
  set_gpt(config, model);
}

std::vector<std::string> obstacles_of_llama_like(LlamaKind kind, const ModelConfig& model) {
  const GptConfig config = gpt_of(model);
  const bool is_llama = kind == LlamaKind::kLlama, is_phi3 = kind == LlamaKind::kPhi3;
  Reasons reasons;
  reasons.unless(config.position_embedding == families::PositionEmbedding::kRotary, "positions are rotary");
  reasons.unless(!config.rotary_interleaved, "rotated pairs are (i, i + half), not neighbours");
  reasons.unless(config.normalization == spec::Normalization::kRmsNorm, "it has RMS norms");
  reasons.unless(is_gated(config.activation) && name_of(config.activation), "the MLP is gated");
  reasons.unless(!config.embed_layernorm, "no norm follows the embedding");
  check_not_capped(config, reasons);
  reasons.unless(!config.residual_from_layernorm, "residual branches start before the norm");
  reasons.unless(config.qk_layernorm == (kind == LlamaKind::kQwen3),
                 kind == LlamaKind::kQwen3 ? "queries and keys have norms" : "queries and keys have no norms");
  if (is_llama)
    reasons.unless(!config.add_qkv_bias || config.add_bias_linear, "biases: all linear layers or none");
  else if (kind == LlamaKind::kQwen2)
    reasons.unless(config.add_qkv_bias && !config.add_bias_linear, "only query, key and value have a bias");
  else
    reasons.unless(!config.add_qkv_bias && !config.add_bias_linear, "no linear layer has a bias");
  if (is_llama) reasons.unless(config.window_size == 0, "there is no sliding window");
  if (is_llama) reasons.unless(config.hidden_size % config.num_attention_heads == 0, "heads divide the hidden size");
  if (is_phi3) {
    reasons.unless(heads_fill_hidden(config), "heads * head size is the hidden size");
    const auto scaling = config.rope_scaling.kind;
    reasons.unless(scaling == spec::RopeScaling::Kind::kNone || scaling == spec::RopeScaling::Kind::kLongRope,
                   "the only scaling of positions is longrope");
  } else {
    reasons.unless(config.rotary_percent == 1, "all channels of a head rotate");
  }
  return reasons.list;
}

void write_window(LlamaKind kind, const GptConfig& config, nlohmann::ordered_json& json) {
  using Json = nlohmann::ordered_json;
  if (kind == LlamaKind::kLlama) return;
  json["sliding_window"] = config.window_size > 0 ? Json(config.window_size) : Json();
  if (kind != LlamaKind::kQwen2 && kind != LlamaKind::kQwen3) return;
  json["use_sliding_window"] = config.window_size > 0;
  json["max_window_layers"] = config.window_size > 0 ? 0 : config.num_layers;
  json["layer_types"] = std::vector<std::string>(static_cast<size_t>(config.num_layers),
                                                 config.window_size > 0 ? "sliding_attention" : "full_attention");
}

void write_llama_like(LlamaKind kind, const ModelConfig& model, nlohmann::ordered_json& json) {
  const GptConfig config = gpt_of(model);
  write_common_gpt(config, json);
  json["num_hidden_layers"] = config.num_layers;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.ffn_hidden_size;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_key_value_heads"] = config.num_groups();
  if (kind == LlamaKind::kQwen3 || !heads_fill_hidden(config)) json["head_dim"] = config.kv_channels;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["rms_norm_eps"] = config.layernorm_epsilon;
  json["hidden_act"] = *name_of(config.activation);
  json["attention_dropout"] = config.attention_dropout;
  if (kind == LlamaKind::kPhi3) json["resid_pdrop"] = config.hidden_dropout;
  if (kind == LlamaKind::kLlama) json["attention_bias"] = json["mlp_bias"] = config.add_bias_linear;
  if (kind == LlamaKind::kQwen3) json["attention_bias"] = false;
  write_window(kind, config, json);
  write_rope(kind, config, json);
}

void map_gate_and_up(HfMapBuilder& builder, LlamaKind kind, const std::string& part, const std::string& theirs) {
  const std::string both = "mlp.dense_h_to_4h." + part;
  if (kind == LlamaKind::kPhi3) return builder.same(both, theirs + "gate_up_proj." + part);
  std::vector<int64_t> half = builder.our_shape(both);
  half[0] /= 2;
  TensorMap& map = builder.map();
  map.add(rows(map, builder.ours(both), 0, map.theirs.add(theirs + "gate_proj." + part, half), 0, half[0]));
  map.add(rows(map, builder.ours(both), half[0], map.theirs.add(theirs + "up_proj." + part, half), 0, half[0]));
}

void map_attention(HfMapBuilder& builder, LlamaKind kind, const GptConfig& config, const std::string& theirs) {
  const HeadShape heads{config.num_attention_heads, config.num_groups(), config.kv_channels};
  const auto add_qkv = [&](const std::string& part) {
    std::vector<std::string> names = {theirs + "q_proj." + part, theirs + "k_proj." + part, theirs + "v_proj." + part};
    if (kind == LlamaKind::kPhi3) names = {theirs + "qkv_proj." + part};
    builder.add_qkv("self_attention.query_key_value." + part, heads, names);
  };
  add_qkv("weight");
  if (config.add_bias_linear || config.add_qkv_bias) add_qkv("bias");
  if (config.qk_layernorm) {
    builder.same("self_attention.query_norm.weight", theirs + "q_norm.weight");
    builder.same("self_attention.key_norm.weight", theirs + "k_norm.weight");
  }
  builder.same_module("self_attention.dense", theirs + "o_proj", config.add_bias_linear);
}

TensorMap map_llama_like(LlamaKind kind, const ModelConfig& model, const HfTensors& theirs) {
  const GptConfig config = gpt_of(model);
  HfMapBuilder builder(model, theirs);
  const std::string base = prefix_of_base(theirs, "model.", "embed_tokens.weight");
  builder.add_vocabulary("word_embeddings.weight", base + "embed_tokens.weight");
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string l = concat(base, "layers.", layer, ".");
    builder.set_prefix(config.layers().layer_name(layer) + ".");
    builder.same("input_layernorm.weight", l + "input_layernorm.weight");
    builder.same("post_attention_layernorm.weight", l + "post_attention_layernorm.weight");
    map_attention(builder, kind, config, l + "self_attn.");
    map_gate_and_up(builder, kind, "weight", l + "mlp.");
    if (config.add_bias_linear) map_gate_and_up(builder, kind, "bias", l + "mlp.");
    builder.same_module("mlp.dense_4h_to_h", l + "mlp.down_proj", config.add_bias_linear);
  }
  builder.set_prefix("");
  builder.same("final_layernorm.weight", base + "norm.weight");
  map_gpt_head(builder, config, theirs);
  return builder.take();
}

HfCodec llama_like_codec(LlamaKind kind) {
  const LlamaRow& row = row_of(kind);
  return {
      .model_type = row.model_type,
      .family = &families::gpt_family(),
      .read = [kind](ConfigReader& reader, const HfTensors&, HfModel& model) { read_llama_like(kind, reader, model); },
      .obstacles = [kind](const ModelConfig& model) { return obstacles_of_llama_like(kind, model); },
      .architecture = [&row](const ModelConfig&) { return concat(row.name, "ForCausalLM"); },
      .write = [kind](const ModelConfig& model, nlohmann::ordered_json& json) { write_llama_like(kind, model, json); },
      .map = [kind](const ModelConfig& model, const HfTensors& theirs) { return map_llama_like(kind, model, theirs); },
      .leaves_out = is_gpt_buffer};
}

}  // namespace

const char* model_type_of(LlamaKind kind) { return row_of(kind).model_type; }

std::vector<HfCodec> llama_like_codecs() {
  std::vector<HfCodec> codecs;
  for (const LlamaKind kind :
       {LlamaKind::kLlama, LlamaKind::kMistral, LlamaKind::kQwen2, LlamaKind::kQwen3, LlamaKind::kPhi3})
    codecs.push_back(llama_like_codec(kind));
  return codecs;
}

}  // namespace espalier::convert
