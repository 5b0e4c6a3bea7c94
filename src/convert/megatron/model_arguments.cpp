#include "convert/megatron/internal/model_arguments.h"

#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/literal.h"

namespace espalier::convert {
namespace {

using store::TorchValue;

struct OtherModel {
  const char* argument;
  const char* unused;  // the value that means "not used", besides None, False, 0 and an empty list or text
  const char* why;
};

// Arguments of experts (moe_*) have defaults that mean nothing without num_experts; those of MLA likewise.
constexpr std::array<OtherModel, 20> kOtherModels = {{
    {"apply_layernorm_1p", "", "the weights of norms are stored minus 1"},
    {"multi_latent_attention", "", "keys and values are projected from a smaller vector"},
    {"num_experts", "1", "there are no mixtures of experts here"},
    {"mlp_type", "standard", "there are no mixtures of experts here"},
    {"heterogeneous_layers_config_path", "", "all layers are the same here"},
    {"heterogeneous_layers_config_encoded_json", "", "all layers are the same here"},
    {"is_hybrid_model", "", "there are no state space layers here"},
    {"hybrid_override_pattern", "", "there are no state space layers here"},
    {"experimental_attention_variant", "", "attention has no such variant here"},
    {"attention_output_gate", "", "the output of attention has no gate here"},
    {"softmax_type", "vanilla", "the softmax of attention has no sink here"},
    {"qk_l2_norm", "", "norms of queries and keys have weights here"},
    {"no_rope_freq", "", "all layers have the same positions here"},
    {"window_attn_skip_freq", "", "all layers have the same window here"},
    {"mtp_num_layers", "", "one token is predicted at a time here"},
    {"quick_geglu", "", "there is no such activation here"},
    {"quick_gelu", "", "there is no such activation here"},
    {"glu_linear_offset", "", "there is no such activation here"},
    {"activation_func_clamp_value", "", "activations are not clamped here"},
    {"retro_add_retriever", "", "there is no retrieval here"},
}};

bool is_unused(const TorchValue& value, const std::string& unused) {
  switch (value.kind()) {
    case TorchValue::Kind::kInt: return value.as_int("") == 0 || std::to_string(value.as_int("")) == unused;
    case TorchValue::Kind::kFloat: return value.as_float("") == 0;
    case TorchValue::Kind::kString: return value.as_string("").empty() || value.as_string("") == unused;
    case TorchValue::Kind::kGlobal: return value.class_name().ends_with("." + unused);  // a member of an enum
    case TorchValue::Kind::kList:
    case TorchValue::Kind::kTuple:
      for (const TorchValue& item : value.items())
        if (!is_unused(item, unused)) return false;
      return true;
    default: return !is_set(&value);
  }
}

std::optional<std::string> toml_of(const TorchValue& value) {
  switch (value.kind()) {
    case TorchValue::Kind::kBool: return value.as_bool("") ? "true" : "false";
    case TorchValue::Kind::kInt: return std::to_string(value.as_int(""));
    case TorchValue::Kind::kFloat: {
      const double number = value.as_float("");
      if (!std::isfinite(number)) return std::nullopt;
      if (number == std::floor(number) && std::abs(number) < 1e15) return format_printf("%.1f", number);
      return format_python_float(number);
    }
    case TorchValue::Kind::kString: return toml_text(value.as_string(""));
    case TorchValue::Kind::kList:
    case TorchValue::Kind::kTuple: {
      std::vector<std::string> words;
      for (const TorchValue& item : value.items()) {
        const auto word = item.is_sequence() ? std::nullopt : toml_of(item);
        if (!word) return std::nullopt;
        words.push_back(*word);
      }
      return "[" + join(words, ", ") + "]";
    }
    default: return std::nullopt;
  }
}

// Nothing: no value that TOML can hold.
std::optional<std::string> toml_value_of(const std::string& name, const TorchValue& value) {
  if (name != "window_size" || !value.is_sequence()) return toml_of(value);
  std::vector<std::string> words;  // (LEFT, RIGHT)
  for (const TorchValue& item : value.items()) {
    if (item.kind() != TorchValue::Kind::kInt) return std::nullopt;
    words.push_back(std::to_string(item.as_int("")));
  }
  return toml_text(join(words, ","));
}

}  // namespace

bool is_set(const TorchValue* value) {
  return value != nullptr && !value->is_none() && !(value->kind() == TorchValue::Kind::kBool && !value->as_bool("")) &&
         !(value->is_sequence() && value->items().empty());
}

bool is_false(const TorchValue& args, const char* name) {
  const TorchValue* value = args.find(name);
  return value != nullptr && value->kind() == TorchValue::Kind::kBool && !value->as_bool("");
}

void refuse_other_models(const TorchValue& args, const std::string& origin) {
  std::string text;
  for (const OtherModel& row : kOtherModels) {
    const TorchValue* value = args.find(row.argument);
    if (value == nullptr || is_unused(*value, row.unused)) continue;
    text += concat(text.empty() ? "" : "\n", origin, ": args.", row.argument, ": ", value->describe(),
                   " is not supported: ", row.why);
  }
  if (!text.empty()) throw UserError(text, ExitCode::kBadData);
}

std::string position_type(const TorchValue& value, const std::string& origin) {
  if (value.is_string()) return value.as_string(origin) == "rope" ? "rotary" : value.as_string(origin);
  if (value.kind() == TorchValue::Kind::kGlobal) {  // a member of the enum, by name
    const std::string& name = value.class_name();
    return name.substr(name.rfind('.') + 1);
  }
  constexpr std::array<const char*, 4> kNames = {"", "rotary", "absolute", "alibi"};
  if (value.kind() == TorchValue::Kind::kRecord && value.items().size() == 1) {  // by number, from older Pythons
    const int64_t number = value.items()[0].as_int(origin + ": args.position_embedding_type");
    if (number >= 1 && number < static_cast<int64_t>(kNames.size())) return kNames[static_cast<size_t>(number)];
  }
  throw UserError(
      concat(origin, ": args.position_embedding_type: expected rotary, absolute or alibi, found ", value.describe()),
      ExitCode::kBadData);
}

std::string toml_text(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      result += std::string("\\") + c;
    else if (byte < 0x20 || byte == 0x7f)
      result += format_printf("\\u%04x", byte);
    else
      result += c;
  }
  return result + "\"";
}

void ArgumentLines::add(const std::string& name, const std::string& value) {
  const auto [said, is_first] = said_.emplace(options_.table.find("--" + name), std::pair{name, value});
  if (is_first)
    text_ += concat(name, " = ", value, "\n");
  else if (said->second.second != value)
    throw UserError(concat(origin_, ": args.", name, ": expected ", said->second.second, ", as args.",
                           said->second.first, " says, found ", value),
                    ExitCode::kBadData);
}

void ArgumentLines::add_argument(const TorchValue& args, const std::string& name) {
  const TorchValue* value = args.find(name);
  if (!is_set(value) || !knows(name)) return;
  const auto text = toml_value_of(name, *value);
  if (!text)
    throw UserError(
        concat(origin_, ": args.", name, ": expected a value or a list of values, found ", value->describe()),
        ExitCode::kBadData);
  add(name, *text);
}

}  // namespace espalier::convert
