// BERTs in Megatron's checkpoints.
#include "base/format.h"
#include "convert/bert/internal/bert_codecs.h"
#include "convert/megatron/internal/model_arguments.h"
#include "convert/megatron/internal/read.h"
#include "families/bert/config.h"

namespace espalier::convert {

using families::BertConfig;
using spec::Activation;
using store::TorchValue;

const std::vector<const char*>& arguments_of_bert() {
  static const std::vector<const char*> names = {"num_layers",
                                                 "hidden_size",
                                                 "ffn_hidden_size",
                                                 "num_attention_heads",
                                                 "kv_channels",
                                                 "max_position_embeddings",
                                                 "position_embedding_type",
                                                 "layernorm_epsilon",
                                                 "norm_epsilon",
                                                 "normalization",
                                                 "apply_residual_connection_post_layernorm",
                                                 "openai_gelu",
                                                 "init_method_std",
                                                 "hidden_dropout",
                                                 "attention_dropout",
                                                 "mask_prob",
                                                 "short_seq_prob"};
  return names;
}

namespace {

// What upstream's parser accepts with a BERT, and what makes another model of it: the family refuses the options with
// the reason.
constexpr const char* kOtherArguments[] = {
    "group_query_attention", "embed_layernorm", "untie_embeddings_and_output_weights", "swiglu",       "glu_activation",
    "squared_relu",          "add_qkv_bias",    "use_rotary_position_embeddings",      "qk_layernorm", "window_size"};

}  // namespace

void add_lines_of_bert_model(const TorchValue& args, const std::vector<const char*>& names, ArgumentLines& lines) {
  for (const std::string name : names) {
    if (name == "position_embedding_type" && is_set(args.find(name)))
      lines.add(name, toml_text(position_type(*args.find(name), lines.origin())));
    else
      lines.add_argument(args, name);
  }
  for (const char* name : kOtherArguments) lines.add_argument(args, name);
  if (is_false(args, "add_bias_linear")) lines.add_flag("disable_bias_linear");
  if (is_false(args, "add_position_embedding")) lines.add_flag("no_position_embedding");
  if (is_false(args, "bias_gelu_fusion")) lines.add_flag("no_bias_gelu_fusion");
}

void put_arguments_of_bert_model(const BertConfig& model, store::TorchPairs& pairs) {
  const auto put = [&](const char* key, TorchValue value) {
    pairs.emplace_back(TorchValue::string(key), std::move(value));
  };
  put("bias_gelu_fusion", TorchValue::boolean(model.activation == Activation::kGeluTanh));
  put("openai_gelu", TorchValue::boolean(model.head_activation == Activation::kGeluTanh));
  put("embed_layernorm", TorchValue::boolean(false));
  put("glu_activation", TorchValue());
  // NVIDIA's names.
  put("normalization", TorchValue::string("LayerNorm"));
  put("norm_epsilon", TorchValue::real(model.layernorm_epsilon));
  put("add_bias_linear", TorchValue::boolean(true));
  put("group_query_attention", TorchValue::boolean(false));
  put("num_query_groups", TorchValue::integer(1));
  put("swiglu", TorchValue::boolean(false));
  put("squared_relu", TorchValue::boolean(false));
}

namespace {

void add_bert_lines(const TorchValue& args, ArgumentLines& lines) {
  add_lines_of_bert_model(args, arguments_of_bert(), lines);
  if (is_false(args, "bert_binary_head")) lines.add_flag("bert_no_binary_head");
}

void put_bert_arguments(const config::RunConfig& run, store::TorchPairs& pairs) {
  const BertConfig model = families::bert_config(run);
  pairs.emplace_back(TorchValue::string("bert_binary_head"), TorchValue::boolean(model.binary_head));
  put_arguments_of_bert_model(model, pairs);
}

MegatronShape shape_of_bert(const config::RunConfig& run) {
  const BertConfig model = families::bert_config(run);
  return {.num_groups = model.num_attention_heads,
          .head_size = model.kv_channels,
          .ffn_hidden_size = model.ffn_hidden_size,
          .ties_embedding = true};
}

std::vector<std::string> unsaid_of_bert(const config::RunConfig& run) {
  const BertConfig model = families::bert_config(run);
  if (model.num_tokentypes == (model.binary_head ? 2 : 0)) return {};
  return {concat("--bert-num-tokentypes ", model.num_tokentypes,
                 ": Megatron's BERT has 2 token types with its binary head, and none without: it cannot be exported")};
}

bool is_megatron_bert(const std::set<std::string>& names) {
  for (const std::string& name : names)
    for (const char* part : {"lm_head.dense.", "tokentype_embeddings.", "pooler."})
      if (name.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace

ModuleName bert_module_name(const std::string& path) {
  std::string name = path;
  for (const char* part : {"embedding.", "encoder.", "transformer."}) name = without_prefix(name, part);
  // The last is Megatron-core's.
  if (name == "word_embeddings_for_head.weight" || name == "output_layer.weight")
    return {.name = "word_embeddings.weight", .is_copy = true};
  if (name == "output_layer.bias") return {.name = "lm_head.bias"};
  for (const std::string norm : {"lm_head.norm.", "lm_head.layer_norm."})
    if (name.starts_with(norm)) return {.name = "lm_head.layernorm." + without_prefix(name, norm)};
  return layer_or_other_name(name);
}

MegatronCodec megatron_bert() {
  return {
      .recognizes = is_megatron_bert,
      .module_name = bert_module_name,
      .sections =
          {{"word_embeddings.", "word_embeddings.", {"language_model", "embedding", "word_embeddings"}},
           {"position_embeddings.", "position_embeddings.", {"language_model", "embedding", "position_embeddings"}},
           {"tokentype_embeddings.", "tokentype_embeddings.", {"language_model", "embedding", "tokentype_embeddings"}},
           {"layers.", "", {"language_model", "encoder"}},
           {"final_layernorm.", "", {"language_model", "encoder"}},
           {"pooler.", "pooler.", {"language_model", "pooler"}},
           {"", "word_embeddings.", {"word_embeddings_for_head"}},
           {"lm_head.bias", "lm_head.", {"lm_head"}},
           {"lm_head.", "lm_head.", {"lm_head"}},
           {"binary_head.", "binary_head.", {"binary_head"}}},
      .shape = shape_of_bert,
      .arguments = arguments_of_bert(),
      .add_lines = add_bert_lines,
      .spelled_apart = {"normalization", "openai_gelu"},
      .put_arguments = put_bert_arguments,
      .obstacles = unsaid_of_bert};
}

}  // namespace espalier::convert
