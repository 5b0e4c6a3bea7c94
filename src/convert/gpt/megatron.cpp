// GPTs in Megatron's checkpoints.
#include "convert/gpt/internal/megatron_gpt.h"

#include "base/format.h"
#include "convert/megatron/internal/model_arguments.h"
#include "convert/megatron/internal/read.h"
#include "families/gpt/config.h"

namespace espalier::convert {
namespace {

using families::GptConfig;
using spec::Activation;
using store::TorchValue;

// Upstream's parser always fills these in and reads them only with another argument.
bool is_unread_of_gpt(const std::string& name, const TorchValue& args) {
  if (name == "num_query_groups") return is_false(args, "group_query_attention");
  if (name == "rope_scaling_factor") return !is_set(args.find("use_rope_scaling"));
  return false;
}

// NVIDIA's older arguments win over the type, whose default is learned positions. "": nothing says.
std::string positions_of_gpt(const TorchValue& args, const std::string& origin) {
  const TorchValue* type = args.find("position_embedding_type");
  const std::string name = is_set(type) ? position_type(*type, origin) : "";
  if (!name.empty() && name != "absolute" && name != "learned_absolute") return name;
  if (is_set(args.find("use_rotary_position_embeddings"))) return "rotary";
  return is_false(args, "add_position_embedding") ? "none" : name;
}

const std::vector<const char*>& arguments_of_gpt() {
  static const std::vector<const char*> names = {"num_layers",
                                                 "hidden_size",
                                                 "ffn_hidden_size",
                                                 "num_attention_heads",
                                                 "group_query_attention",
                                                 "num_query_groups",
                                                 "num_key_value_heads",
                                                 "kv_channels",
                                                 "max_position_embeddings",
                                                 "position_embedding_type",
                                                 "embed_layernorm",
                                                 "untie_embeddings_and_output_weights",
                                                 "layernorm_epsilon",
                                                 "norm_epsilon",
                                                 "apply_residual_connection_post_layernorm",
                                                 "openai_gelu",
                                                 "swiglu",
                                                 "glu_activation",
                                                 "squared_relu",
                                                 "normalization",
                                                 "disable_bias_linear",
                                                 "add_qkv_bias",
                                                 "use_rotary_position_embeddings",
                                                 "rotary_percent",
                                                 "rotary_position_embeddings_theta",
                                                 "rotary_base",
                                                 "rotary_interleaved",
                                                 "use_rope_scaling",
                                                 "rope_scaling_factor",
                                                 "rotary_seq_len_interpolation_factor",
                                                 "qk_layernorm",
                                                 "window_size",
                                                 "init_method_std",
                                                 "hidden_dropout",
                                                 "attention_dropout"};
  return names;
}

void add_gpt_lines(const TorchValue& args, ArgumentLines& lines) {
  if (const std::string positions = positions_of_gpt(args, lines.origin()); !positions.empty())
    lines.add("position_embedding_type", toml_text(positions));
  for (const std::string name : arguments_of_gpt())
    if (name != "position_embedding_type" && name != "use_rotary_position_embeddings" && !is_unread_of_gpt(name, args))
      lines.add_argument(args, name);
  if (is_false(args, "add_bias_linear")) lines.add_flag("disable_bias_linear");
  if (is_false(args, "bias_gelu_fusion")) lines.add_flag("no_bias_gelu_fusion");
}

const char* glu_name(Activation activation) {
  if (activation == Activation::kGeglu) return "geglu";
  if (activation == Activation::kReglu) return "reglu";
  return activation == Activation::kLiglu ? "liglu" : nullptr;
}

void put_gpt_arguments(const config::RunConfig& run, store::TorchPairs& pairs) {
  const GptConfig model = families::gpt_config(run);
  const auto put = [&](const char* key, TorchValue value) {
    pairs.emplace_back(TorchValue::string(key), std::move(value));
  };
  put("bias_gelu_fusion", TorchValue::boolean(model.activation == Activation::kGeluTanh));
  put("swiglu", TorchValue::boolean(model.activation == Activation::kSwiglu));
  put("squared_relu", TorchValue::boolean(model.activation == Activation::kSquaredRelu));
  const char* gated = glu_name(model.activation);
  put("glu_activation", gated == nullptr ? TorchValue() : TorchValue::string(gated));
  // NVIDIA's names.
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

MegatronShape shape_of_gpt(const config::RunConfig& run) {
  const GptConfig model = families::gpt_config(run);
  // Halves of gated layers are laid out as in the program that knows the activation: --swiglu is Megatron-LM's, the
  // others are Megatron-DeepSpeed's --glu-activation.
  return {.num_groups = model.num_groups(),
          .head_size = model.kv_channels,
          .ffn_hidden_size = model.ffn_hidden_size,
          .ties_embedding = model.tie_output,
          .activated_half_last = spec::is_gated(model.activation) && model.activation != Activation::kSwiglu};
}

std::vector<std::string> unsaid_of_gpt(const config::RunConfig& run) {
  const GptConfig model = families::gpt_config(run);
  if (model.mup.mup)
    return {
        "the model multiplies logits, embeddings or scores by numbers of --mup, which Megatron-DeepSpeed does not "
        "have: it cannot be exported as it is; export-hf puts them into the weights"};
  if (model.logit_soft_cap > 0 || model.attn_logit_soft_cap > 0)
    return {
        "the model caps its logits or attention scores (--logit-soft-cap, --attn-logit-soft-cap), which "
        "Megatron-DeepSpeed does not have: it cannot be exported"};
  const Activation activation = model.activation;
  if (activation == Activation::kSilu || activation == Activation::kRelu || activation == Activation::kGegluTanh)
    return {"the model's activation has no option in Megatron: it cannot be exported"};
  return {};
}

bool is_megatron_gpt(const std::set<std::string>& names) {
  for (const std::string& name : names)
    for (const char* part :
         {"lm_head.dense.", "tokentype_embeddings.", "pooler.", "inter_attention.", "cross_attention."})
      if (name.find(part) != std::string::npos) return false;
  return true;
}

ModuleName gpt_module_name(const std::string& path) {
  std::string name = path;
  for (const char* part : {"embedding.", "encoder.", "transformer.", "decoder."}) name = without_prefix(name, part);
  if (name == "word_embeddings_for_head.weight") return {.name = "word_embeddings.weight", .is_copy = true};
  if (name == "output_layer.weight") return {.name = "lm_head.weight"};
  return layer_or_other_name(name);
}

}  // namespace

MegatronCodec megatron_gpt() {
  return {.recognizes = is_megatron_gpt,
          .module_name = gpt_module_name,
          .sections = {{"word_embeddings.", "word_embeddings.", {"language_model", "embedding", "word_embeddings"}},
                       {"position_embeddings.",
                        "position_embeddings.",
                        {"language_model", "embedding", "position_embeddings"}},
                       {"layers.", "", {"language_model", "encoder"}},
                       {"final_layernorm.", "", {"language_model", "encoder"}},
                       {"lm_head.", "lm_head.", {"language_model", "output_layer"}},
                       {"", "word_embeddings.", {"word_embeddings_for_head"}}},
          .shape = shape_of_gpt,
          .arguments = arguments_of_gpt(),
          .add_lines = add_gpt_lines,
          .spelled_apart = {"group_query_attention", "num_query_groups", "normalization", "window_size", "swiglu",
                            "glu_activation", "squared_relu", "openai_gelu"},
          .put_arguments = put_gpt_arguments,
          .obstacles = unsaid_of_gpt,
          .has_pipeline_module = true};
}

}  // namespace espalier::convert
