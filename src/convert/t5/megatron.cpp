// T5s in Megatron's checkpoints: an encoder and a decoder in one module, or on pipeline stages of their own.
#include "convert/megatron/internal/model_arguments.h"
#include "convert/megatron/internal/read.h"
#include "convert/t5/internal/t5.h"

namespace espalier::convert {
namespace {

bool is_megatron_t5(const std::set<std::string>& names) {
  for (const std::string& name : names)
    if (name.find("inter_attention.") != std::string::npos) return true;
  return false;
}

ModuleName t5_module_name(const std::string& path) {
  const std::string name = without_prefix(path, "embedding.");
  if (name == "word_embeddings_for_head.weight") return {.name = "word_embeddings.weight", .is_copy = true};
  for (const std::string stack : {"encoder.", "decoder."}) {
    if (!name.starts_with(stack)) continue;
    ModuleName inner = layer_or_other_name(name.substr(stack.size()));
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

void add_t5_lines(const store::TorchValue& args, ArgumentLines& lines) {
  const store::TorchValue* type = args.find("position_embedding_type");
  if (is_set(type)) lines.add("position_embedding_type", toml_text(position_type(*type, lines.origin())));
  for (const char* name : arguments_of_t5()) lines.add_argument(args, name);
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
        return {"checkpoints of a T5 are read from Megatron's form and not written in it: export it for transformers"};
      }};
}

}  // namespace espalier::convert
