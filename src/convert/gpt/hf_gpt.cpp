#include <nlohmann/json.hpp>

#include "base/format.h"
#include "convert/gpt/internal/hf_gpt.h"
#include "convert/hf/config.h"

namespace espalier::convert {

using families::GptConfig;

GptConfig gpt_of(const ModelConfig& model) { return families::gpt_config(model.settings, model.vocabulary); }

void set_gpt(const GptConfig& config, HfModel& model) {
  model.config.settings = config::FamilyConfig(families::gpt_settings(config));
  model.config.longest_sequence = config.max_position_embeddings;
}

GptConfig read_common_gpt(ConfigReader& reader, const HfModel& model, bool is_tied_unless_said) {
  GptConfig config;
  config.vocab_size = model.config.vocabulary.size, config.padded_vocab_size = model.config.vocabulary.padded_size;
  config.tie_output = reader.flag("tie_word_embeddings", is_tied_unless_said);
  config.init_method_std = reader.number("initializer_range", 0.02, 0, 1e6);
  reader.require("add_cross_attention", false, "there is no encoder here");
  reader.require("is_encoder_decoder", false, "there is no encoder here");
  reader.ignore({"is_decoder"});
  return config;
}

void read_gpt_heads(ConfigReader& reader, GptConfig& config) {
  const int64_t hidden = config.hidden_size, heads = config.num_attention_heads;
  if (config.kv_channels == 0 && hidden > 0 && heads > 0) {
    if (hidden % heads != 0)
      reader.problem("num_attention_heads", heads, " does not divide hidden_size ", hidden,
                     ", and head_dim is not given");
    config.kv_channels = hidden / heads;
  }
  if (config.num_query_groups == 0) config.num_query_groups = heads;
  const int64_t groups = config.num_query_groups;
  if (groups > 0 && heads % groups != 0)
    reader.problem("num_key_value_heads", groups, " does not divide num_attention_heads ", heads);
}

void write_common_gpt(const GptConfig& config, nlohmann::ordered_json& json) {
  json["tie_word_embeddings"] = config.tie_output;
  json["initializer_range"] = config.init_method_std;
}

bool heads_fill_hidden(const GptConfig& config) {
  return config.num_attention_heads * config.kv_channels == config.hidden_size;
}

void check_not_capped(const GptConfig& config, Reasons& reasons) {
  reasons.unless(config.logit_soft_cap == 0, "logits are not capped (--logit-soft-cap)");
  reasons.unless(config.attn_logit_soft_cap == 0, "attention scores are not capped (--attn-logit-soft-cap)");
}

void check_old_style_gpt(const GptConfig& config, Reasons& reasons) {
  reasons.unless(config.normalization == spec::Normalization::kLayerNorm, "it has layer norms");
  reasons.unless(config.add_bias_linear, "all its linear layers have biases");
  reasons.unless(config.num_groups() == config.num_attention_heads, "each query head has a key and value head");
  reasons.unless(heads_fill_hidden(config), "heads * head size is the hidden size");
  reasons.unless(!config.qk_layernorm, "queries and keys have no norms");
  reasons.unless(config.window_size == 0, "there is no sliding window");
  check_not_capped(config, reasons);
}

void erase_old_spellings(nlohmann::ordered_json& json) {
  for (const char* name :
       {"n_embed", "num_attention_heads", "num_hidden_layers", "hidden_size", "max_position_embeddings"})
    json.erase(name);
}

std::string prefix_of_base(const HfTensors& theirs, const std::string& prefix, const std::string& embedding) {
  return theirs.has(embedding) ? "" : prefix;
}

void map_gpt_head(HfMapBuilder& builder, const GptConfig& config, const HfTensors& theirs) {
  const std::string name = "lm_head.weight";
  if (!config.tie_output)
    builder.add_vocabulary(name, name);
  else if (theirs.has(name))
    builder.copy_vocabulary("word_embeddings.weight", name);
}

bool is_gpt_buffer(const std::string& name, const ModelConfig&) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace espalier::convert
