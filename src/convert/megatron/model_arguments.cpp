#include "convert/megatron/internal/model_arguments.h"

#include <array>

#include "base/error.h"

namespace espalier::convert {
namespace {

using store::TorchValue;

struct OtherModel {
  const char* argument;
  const char* unused;  // the value that means "not used", beside None, False, 0 and an empty list or text
  const char* why;
};

// Arguments of experts (moe_*) have defaults that mean nothing without num_experts; those of MLA likewise.
constexpr std::array<OtherModel, 20> kOtherModels = {{
    {"apply_layernorm_1p", "", "the weights of norms are kept less 1"},
    {"multi_latent_attention", "", "keys and values are projected from a smaller vector"},
    {"num_experts", "1", "there are no mixtures of experts here"},
    {"mlp_type", "standard", "there are no mixtures of experts here"},
    {"heterogeneous_layers_config_path", "", "all layers are alike here"},
    {"heterogeneous_layers_config_encoded_json", "", "all layers are alike here"},
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

}  // namespace

bool is_set(const TorchValue* value) {
  return value != nullptr && !value->is_none() && !(value->kind() == TorchValue::Kind::kBool && !value->as_bool("")) &&
         !(value->is_sequence() && value->items().empty());
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

void put_names_of_nvidia(const families::GptConfig& model, store::TorchPairs& pairs) {
  const auto put = [&](const char* key, TorchValue value) {
    pairs.emplace_back(TorchValue::string(key), std::move(value));
  };
  const bool is_grouped = model.num_groups() != model.num_attention_heads;
  const bool is_rms = model.normalization == spec::Normalization::kRmsNorm;
  put("normalization", TorchValue::string(is_rms ? "RMSNorm" : "LayerNorm"));
  put("norm_epsilon", TorchValue::real(model.layernorm_epsilon));
  put("add_bias_linear", TorchValue::boolean(model.add_bias_linear));
  put("group_query_attention", TorchValue::boolean(is_grouped));
  put("num_query_groups", TorchValue::integer(is_grouped ? model.num_groups() : 1));
  put("rotary_base", TorchValue::real(model.rotary_base));
  put("window_size", model.window_size == 0
                         ? TorchValue()
                         : TorchValue::tuple({TorchValue::integer(model.window_size - 1), TorchValue::integer(0)}));
}

}  // namespace espalier::convert
