// T5s in Megatron's checkpoints: an encoder and a decoder in one module, or on pipeline stages of their own.
#include <cstring>
#include <utility>

#include "convert/megatron/internal/model_arguments.h"
#include "convert/megatron/internal/read.h"
#include "convert/t5/internal/t5.h"

namespace espalier::convert {
namespace {

bool is_megatron_t5(const std::set<std::string>& names) {
  for (const std::string& name : names)
    for (const char* part : {"inter_attention.", "cross_attention."})
      if (name.find(part) != std::string::npos) return true;
  return false;
}

// Megatron-core's names of a layer of the decoder, whose norm before the MLP is the third.
std::string decoder_layer_name(const std::string& name) {
  static constexpr std::pair<const char*, const char*> kNames[] = {
      {"cross_attention.linear_q.", "inter_attention.query."},
      {"cross_attention.linear_kv.", "inter_attention.key_value."},
      {"cross_attention.linear_proj.", "inter_attention.dense."},
      {"pre_cross_attn_layernorm.", "post_attention_layernorm."},
      {"pre_mlp_layernorm.", "post_inter_attention_layernorm."},
      {"mlp.linear_fc1.layer_norm_", "post_inter_attention_layernorm."}};
  for (const auto& [theirs, ours] : kNames)
    if (name.starts_with(theirs)) return ours + name.substr(std::strlen(theirs));
  return name;
}

// "layers.3.REST" with our name of REST.
std::string decoder_name(const std::string& name) {
  const size_t dot = name.find('.', std::strlen("layers."));
  if (!name.starts_with("layers.") || dot == std::string::npos) return name;
  return name.substr(0, dot + 1) + decoder_layer_name(name.substr(dot + 1));
}

ModuleName t5_module_name(const std::string& path) {
  const std::string name = without_prefix(path, "embedding.");
  if (name == "word_embeddings_for_head.weight") return {.name = "word_embeddings.weight", .is_copy = true};
  // Megatron-core keeps its output layer under two names.
  if (name == "lm_head.output_layer.bias") return {.name = "lm_head.bias"};
  if (name == "lm_head.output_layer.weight") return {.name = "word_embeddings.weight", .is_copy = true};
  if (name == "output_layer.bias") return {};
  if (name == "output_layer.weight") return {.name = "lm_head.weight"};
  for (const std::string stack : {"encoder.", "decoder."}) {
    if (!name.starts_with(stack)) continue;
    ModuleName inner =
        layer_or_other_name(stack == "decoder." ? decoder_name(name.substr(stack.size())) : name.substr(stack.size()));
    if (inner.layer >= 0)
      inner.stack = stack + inner.stack;
    else if (!inner.name.empty())
      inner.name = stack + inner.name;
    return inner;
  }
  return layer_or_other_name(name);
}

const std::vector<const char*>& arguments_of_t5() {
  static const std::vector<const char*> names = {"num_layers",
                                                 "decoder_num_layers",
                                                 "hidden_size",
                                                 "ffn_hidden_size",
                                                 "num_attention_heads",
                                                 "kv_channels",
                                                 "max_position_embeddings",
                                                 "decoder_seq_length",
                                                 "layernorm_epsilon",
                                                 "norm_epsilon",
                                                 "normalization",
                                                 "apply_residual_connection_post_layernorm",
                                                 "untie_embeddings_and_output_weights",
                                                 "openai_gelu",
                                                 "disable_bias_linear",
                                                 "mask_prob",
                                                 "short_seq_prob",
                                                 "init_method_std",
                                                 "hidden_dropout",
                                                 "attention_dropout"};
  return names;
}

// What upstream's parser accepts with a T5, and what makes another model of it: the family refuses the options with the
// reason.
constexpr const char* kOtherArgumentsOfT5[] = {"group_query_attention",          "embed_layernorm", "add_qkv_bias",
                                               "use_rotary_position_embeddings", "qk_layernorm",    "window_size"};

// Upstream has a word for each activation; here it is one option.
void add_activation(const store::TorchValue& args, ArgumentLines& lines) {
  for (const char* name : {"swiglu", "squared_relu"})
    if (is_set(args.find(name))) lines.add("activation", toml_text(name));
  if (const store::TorchValue* gated = args.find("glu_activation"); is_set(gated))
    lines.add("activation", toml_text(gated->as_string(lines.origin() + ": args.glu_activation")));
}

void add_t5_lines(const store::TorchValue& args, ArgumentLines& lines) {
  const store::TorchValue* type = args.find("position_embedding_type");
  if (is_set(type)) lines.add("position_embedding_type", toml_text(position_type(*type, lines.origin())));
  for (const char* name : arguments_of_t5()) lines.add_argument(args, name);
  for (const char* name : kOtherArgumentsOfT5) lines.add_argument(args, name);
  add_activation(args, lines);
  if (is_false(args, "add_position_embedding")) lines.add_flag("no_position_embedding");
  if (is_false(args, "add_bias_linear")) lines.add_flag("disable_bias_linear");
  if (is_false(args, "bias_gelu_fusion")) lines.add_flag("no_bias_gelu_fusion");
}

MegatronShape shape_of_t5(const config::RunConfig& run) {
  const families::T5Config model = families::t5_config(run);
  return {.num_groups = model.num_attention_heads,
          .head_size = model.kv_channels,
          .ffn_hidden_size = model.ffn_hidden_size,
          .ties_embedding = model.tie_output};
}

}  // namespace

MegatronCodec megatron_t5() {
  return {
      .recognizes = is_megatron_t5,
      .module_name = t5_module_name,
      .shape = shape_of_t5,
      .arguments = arguments_of_t5(),
      .add_lines = add_t5_lines,
      .put_arguments = [](const config::RunConfig&, store::TorchPairs&) {},
      .obstacles = [](const config::RunConfig&) -> std::vector<std::string> {
        return {"checkpoints of a T5 are read in Megatron's format but not written in it: export it for transformers"};
      }};
}

}  // namespace espalier::convert
