// Names of parameters in the files of Megatron's releases, and ours.
#include <array>

#include "base/error.h"
#include "base/format.h"
#include "convert/megatron/internal/read.h"

namespace espalier::convert {
namespace {

struct Renamed {
  const char* theirs;
  const char* ours;
};

// Spellings of later releases, and of Megatron-core.
constexpr std::array<Renamed, 15> kRenamed = {{
    {"self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"},
    {"self_attention.linear_qkv.layer_norm_bias", "input_layernorm.bias"},
    {"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"},
    {"mlp.linear_fc1.layer_norm_bias", "post_attention_layernorm.bias"},
    {"self_attention.linear_qkv.", "self_attention.query_key_value."},
    {"self_attention.linear_proj.", "self_attention.dense."},
    {"self_attention.q_layernorm.", "self_attention.query_norm."},
    {"self_attention.k_layernorm.", "self_attention.key_norm."},
    {"attention.query_key_value.", "self_attention.query_key_value."},
    {"attention.dense.", "self_attention.dense."},
    {"mlp.linear_fc1.", "mlp.dense_h_to_4h."},
    {"mlp.linear_fc2.", "mlp.dense_4h_to_h."},
    {"input_norm.", "input_layernorm."},
    {"post_attention_norm.", "post_attention_layernorm."},
    {"pre_mlp_layernorm.", "post_attention_layernorm."},
}};

bool is_layer_number(const std::string& text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

std::string without_prefix(const std::string& text, const std::string& prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

bool is_word_embedding(const std::string& parameter) { return parameter.ends_with("word_embeddings.weight"); }

ModuleName layer_or_other_name(const std::string& name) {
  if (name.starts_with("final_norm.")) return {.name = "final_layernorm." + without_prefix(name, "final_norm.")};
  const std::string layers = "layers.";
  if (!name.starts_with(layers)) return {.name = layer_parameter_name(name)};
  const size_t dot = name.find('.', layers.size());
  const std::string number = name.substr(layers.size(), dot == std::string::npos ? dot : dot - layers.size());
  if (dot == std::string::npos || !is_layer_number(number)) return {.name = name};
  return {.stack = "layers", .layer = std::stoll(number), .name = layer_parameter_name(name.substr(dot + 1))};
}

bool is_extra_state(const std::string& name) { return name.ends_with("_extra_state"); }

std::string layer_parameter_name(const std::string& name) {
  if (is_extra_state(name) || name.ends_with("inv_freq") || name.ends_with("masked_bias")) return "";
  for (const Renamed& row : kRenamed)
    if (name.starts_with(row.theirs)) return row.ours + name.substr(std::string(row.theirs).size());
  return name;
}

void LayerRoles::add(int64_t number, const std::vector<std::string>& keys, const std::filesystem::path& file) {
  const auto has = [&](const char* part) {
    for (const std::string& key : keys)
      if (key.find(part) != std::string::npos) return true;
    return false;
  };
  if (has("word_embeddings.weight"))
    roles_[number] = Role::kEmbedding;
  else if (has("query_key_value.") || has("dense_h_to_4h."))
    roles_[number] = Role::kTransformer;
  else if (has("lm_head."))
    roles_[number] = Role::kHead;
  else if (keys.size() <= 2 && !keys.empty() && has("weight"))
    roles_[number] = Role::kFinalNorm;
  else
    refuse(file, "(keys)", "those of an embedding, a transformer layer, a norm or an output layer",
           keys.empty() ? "none" : join(keys, ", "));
}

void LayerRoles::finish() {
  for (const auto& [number, role] : roles_)
    if (role == Role::kTransformer) transformer_.emplace(number, static_cast<int64_t>(transformer_.size()));
}

std::string LayerRoles::name_of(int64_t number, const std::string& key) const {
  const auto found = roles_.find(number);
  if (found == roles_.end()) return "";
  switch (found->second) {
    case Role::kEmbedding:
    case Role::kHead: return layer_parameter_name(key);
    case Role::kFinalNorm: return "final_layernorm." + key;
    case Role::kTransformer: break;
  }
  const std::string name = layer_parameter_name(key);
  return name.empty() ? "" : concat("layers.", transformer_.at(number), ".", name);
}

std::optional<std::string> LayerRoles::name_of(const std::string& parameter) const {
  const std::string tied = "tied_modules.embed.";
  if (parameter.starts_with(tied)) return layer_parameter_name(parameter.substr(tied.size()));
  const size_t dot = parameter.find('.');
  if (dot == std::string::npos || !is_layer_number(parameter.substr(0, dot))) return std::nullopt;
  const int64_t number = std::stoll(parameter.substr(0, dot));
  if (!roles_.contains(number)) return std::nullopt;
  return name_of(number, parameter.substr(dot + 1));
}

std::vector<NamedView> in_optimizer_order(const std::vector<NamedView>& params) {
  std::vector<NamedView> ordered, without_decay;
  for (const NamedView& param : params) {
    const bool is_norm = param.name.find("norm.") != std::string::npos;
    (is_norm || param.name.ends_with(".bias") ? without_decay : ordered).push_back(param);
  }
  ordered.insert(ordered.end(), without_decay.begin(), without_decay.end());
  return ordered;
}

}  // namespace espalier::convert
