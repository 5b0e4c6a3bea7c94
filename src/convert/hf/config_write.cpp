// From our configuration to a config.json, and which families of transformers can hold a model.
#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "convert/hf/config.h"
#include "convert/hf/internal/activation_names.h"
#include "convert/hf/internal/config_reader.h"
#include "convert/hf/internal/rope.h"

namespace espalier::convert {
namespace {

using Json = ConfigReader::Json;
using families::GptConfig;

// Collects reasons: `reasons.unless(config.window_size == 0, "...")`.
struct Reasons {
  std::vector<std::string> list;
  void unless(bool good, const std::string& reason) {
    if (!good) list.push_back(reason);
  }
};

bool heads_fill_hidden(const GptConfig& config) {
  return config.num_attention_heads * config.kv_channels == config.hidden_size;
}

void check_old_style(const GptConfig& config, Reasons& reasons) {
  reasons.unless(config.normalization == spec::Normalization::kLayerNorm, "it has layer norms");
  reasons.unless(config.add_bias_linear, "all its linear layers have biases");
  reasons.unless(config.num_groups() == config.num_attention_heads, "each query head has a key and value head");
  reasons.unless(heads_fill_hidden(config), "heads * head size is the hidden size");
  reasons.unless(!config.qk_layernorm, "queries and keys have no norms");
  reasons.unless(config.window_size == 0, "there is no sliding window");
}

void check_gpt2(const GptConfig& config, Reasons& reasons) {
  check_old_style(config, reasons);
  reasons.unless(config.position_embedding == families::PositionEmbedding::kLearned, "positions are learned");
  reasons.unless(!config.embed_layernorm, "no norm follows the embedding");
  reasons.unless(!config.residual_from_layernorm, "residual branches start before the norm");
  reasons.unless(!is_gated(config.activation) && name_of(config.activation), "the MLP is not gated");
}

void check_bloom(const GptConfig& config, Reasons& reasons) {
  check_old_style(config, reasons);
  reasons.unless(config.position_embedding == families::PositionEmbedding::kAlibi, "positions are ALiBi's");
  reasons.unless(config.embed_layernorm, "a norm follows the embedding");
  reasons.unless(config.layernorm_epsilon == 1e-5, "the epsilon of its norms is 1e-05, that of the embedding's");
  reasons.unless(config.activation == spec::Activation::kGeluTanh, "the activation is gelu in its tanh form");
  reasons.unless(config.ffn_hidden_size == 4 * config.hidden_size, "the MLP is 4 * hidden size wide");
}

void check_llama_like(HfFamily family, const GptConfig& config, Reasons& reasons) {
  const bool is_llama = family == HfFamily::kLlama, is_phi3 = family == HfFamily::kPhi3;
  reasons.unless(config.position_embedding == families::PositionEmbedding::kRotary, "positions are rotary");
  reasons.unless(!config.rotary_interleaved, "rotated pairs are (i, i + half), not neighbours");
  reasons.unless(config.normalization == spec::Normalization::kRmsNorm, "it has RMS norms");
  reasons.unless(is_gated(config.activation) && name_of(config.activation), "the MLP is gated");
  reasons.unless(!config.embed_layernorm, "no norm follows the embedding");
  reasons.unless(!config.residual_from_layernorm, "residual branches start before the norm");
  reasons.unless(config.qk_layernorm == (family == HfFamily::kQwen3),
                 family == HfFamily::kQwen3 ? "queries and keys have norms" : "queries and keys have no norms");
  if (is_llama)
    reasons.unless(!config.add_qkv_bias || config.add_bias_linear, "biases: all linear layers or none");
  else if (family == HfFamily::kQwen2)
    reasons.unless(config.add_qkv_bias && !config.add_bias_linear, "only query, key and value have a bias");
  else
    reasons.unless(!config.add_qkv_bias && !config.add_bias_linear, "no linear layer has a bias");
  if (is_llama) reasons.unless(config.window_size == 0, "there is no sliding window");
  if (is_llama) reasons.unless(config.hidden_size % config.num_attention_heads == 0, "heads divide the hidden size");
  if (is_phi3) {
    reasons.unless(heads_fill_hidden(config), "heads * head size is the hidden size");
    const auto kind = config.rope_scaling.kind;
    reasons.unless(kind == spec::RopeScaling::Kind::kNone || kind == spec::RopeScaling::Kind::kLongRope,
                   "the only scaling of positions is longrope");
  } else {
    reasons.unless(config.rotary_percent == 1, "all channels of a head rotate");
  }
}

const char* dtype_name(store::DType dtype) {
  if (dtype == store::DType::kBFloat16) return "bfloat16";
  return dtype == store::DType::kFloat16 ? "float16" : "float32";
}

void write_common(const HfModel& model, Json& json) {
  const HfFamilyNames& names = names_of(model.family);
  json["architectures"] = Json::array({names.architecture});
  json["model_type"] = names.model_type;
  json["vocab_size"] = model.config.padded_vocab_size;
  json["tie_word_embeddings"] = model.config.tie_output;
  json["initializer_range"] = model.config.init_method_std;
  if (!model.dtype) return;
  json["dtype"] = json["torch_dtype"] = dtype_name(*model.dtype);  // transformers 5's name and transformers 4's
}

void write_gpt2(const GptConfig& config, Json& json) {
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

void write_bloom(const GptConfig& config, Json& json) {
  json["n_layer"] = config.num_layers;
  json["hidden_size"] = config.hidden_size;
  json["n_head"] = config.num_attention_heads;
  json["seq_length"] = config.max_position_embeddings;
  json["layer_norm_epsilon"] = config.layernorm_epsilon;
  json["apply_residual_connection_post_layernorm"] = config.residual_from_layernorm;
  json["hidden_dropout"] = config.hidden_dropout;
  json["attention_dropout"] = config.attention_dropout;
}

void write_window(HfFamily family, const GptConfig& config, Json& json) {
  const Json window = config.window_size > 0 ? Json(config.window_size) : Json();
  if (family == HfFamily::kLlama) return;
  json["sliding_window"] = window;
  if (family != HfFamily::kQwen2 && family != HfFamily::kQwen3) return;
  json["use_sliding_window"] = config.window_size > 0;
  json["max_window_layers"] = config.window_size > 0 ? 0 : config.num_layers;
  json["layer_types"] = std::vector<std::string>(static_cast<size_t>(config.num_layers),
                                                 config.window_size > 0 ? "sliding_attention" : "full_attention");
}

void write_llama_like(HfFamily family, const GptConfig& config, Json& json) {
  json["num_hidden_layers"] = config.num_layers;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.ffn_hidden_size;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_key_value_heads"] = config.num_groups();
  if (family == HfFamily::kQwen3 || !heads_fill_hidden(config)) json["head_dim"] = config.kv_channels;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["rms_norm_eps"] = config.layernorm_epsilon;
  json["hidden_act"] = *name_of(config.activation);
  json["attention_dropout"] = config.attention_dropout;
  if (family == HfFamily::kPhi3) json["resid_pdrop"] = config.hidden_dropout;
  if (family == HfFamily::kLlama) json["attention_bias"] = json["mlp_bias"] = config.add_bias_linear;
  if (family == HfFamily::kQwen3) json["attention_bias"] = false;
  write_window(family, config, json);
  write_rope(family, config, json);
}

// Older spellings of what is written under its present name.
constexpr const char* kAliases[] = {"n_embed", "num_attention_heads", "num_hidden_layers", "hidden_size",
                                    "max_position_embeddings"};

Json start_from(const std::string& base, HfFamily family) {
  if (base.empty()) return Json::object();
  Json json = Json::parse(base);
  if (json.value("model_type", "") != names_of(family).model_type) return Json::object();
  if (!is_llama_like(family))
    for (const char* alias : kAliases) json.erase(alias);
  return json;
}

}  // namespace

std::vector<std::string> obstacles(HfFamily family, const GptConfig& config) {
  Reasons reasons;
  if (family == HfFamily::kGpt2)
    check_gpt2(config, reasons);
  else if (family == HfFamily::kBloom)
    check_bloom(config, reasons);
  else
    check_llama_like(family, config, reasons);
  return reasons.list;
}

HfFamily choose_family(const GptConfig& config, std::optional<HfFamily> preferred) {
  if (preferred && obstacles(*preferred, config).empty()) return *preferred;
  size_t fewest = SIZE_MAX;
  for (const HfFamilyNames& names : hf_families()) {
    const size_t count = obstacles(names.family, config).size();
    if (count == 0) return names.family;
    fewest = std::min(fewest, count);
  }
  std::string text = "no family of transformers that this program writes can hold this model. Nearest:";
  for (const HfFamilyNames& names : hf_families())
    if (const auto reasons = obstacles(names.family, config); reasons.size() == fewest)
      text += concat("\n  ", names.model_type, ", but there ", join(reasons, ", and "));
  throw UserError(text, ExitCode::kUsage);
}

std::string hf_config_json(const HfModel& model, const std::string& base) {
  ESPALIER_CHECK(obstacles(model.family, model.config).empty(), names_of(model.family).model_type);
  Json json = start_from(base, model.family);
  write_common(model, json);
  if (model.family == HfFamily::kGpt2)
    write_gpt2(model.config, json);
  else if (model.family == HfFamily::kBloom)
    write_bloom(model.config, json);
  else
    write_llama_like(model.family, model.config, json);
  return json.dump(2) + "\n";
}

}  // namespace espalier::convert
