#include "convert/megatron/arguments.h"

#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/literal.h"

namespace espalier::convert {
namespace {

using store::TorchValue;

// Names of attributes; each is an option of the same name.
constexpr const char* kArguments[] = {"num_layers",
                                      "hidden_size",
                                      "ffn_hidden_size",
                                      "num_attention_heads",
                                      "num_query_groups",
                                      "num_key_value_heads",
                                      "kv_channels",
                                      "max_position_embeddings",
                                      "position_embedding_type",
                                      "embed_layernorm",
                                      "untie_embeddings_and_output_weights",
                                      "make_vocab_size_divisible_by",
                                      "layernorm_epsilon",
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
                                      "qk_layernorm",
                                      "window_size",
                                      "init_method_std",
                                      "hidden_dropout",
                                      "attention_dropout",
                                      "weight_decay",
                                      "clip_grad",
                                      "adam_beta1",
                                      "adam_beta2",
                                      "adam_eps",
                                      "optimizer",
                                      "micro_batch_size",
                                      "global_batch_size",
                                      "rampup_batch_size",
                                      "train_iters",
                                      "train_samples",
                                      "seed",
                                      "fp16",
                                      "bf16",
                                      "loss_scale",
                                      "initial_loss_scale",
                                      "min_loss_scale",
                                      "loss_scale_window",
                                      "hysteresis",
                                      "lr",
                                      "min_lr",
                                      "lr_decay_style",
                                      "lr_decay_iters",
                                      "lr_decay_samples",
                                      "lr_decay_tokens",
                                      "lr_warmup_fraction",
                                      "lr_warmup_iters",
                                      "lr_warmup_samples",
                                      "data_path",
                                      "split",
                                      "seq_length",
                                      "reset_position_ids",
                                      "reset_attention_mask",
                                      "eod_mask_loss",
                                      "dataloader_type",
                                      "eval_iters",
                                      "eval_interval",
                                      "tokenizer_type",
                                      "vocab_file",
                                      "merge_file",
                                      "tokenizer_name_or_path",
                                      "tokenizer_model",
                                      "vocab_extra_ids",
                                      "tensor_model_parallel_size",
                                      "pipeline_model_parallel_size"};

// What megatron.enums.PositionEmbeddingType and argparse's words are called here.
std::string position_type(const TorchValue& value, const std::string& origin) {
  if (value.is_string()) return value.as_string(origin) == "rope" ? "rotary" : value.as_string(origin);
  if (value.kind() == TorchValue::Kind::kGlobal) {  // a member of the enum, by name
    const std::string name = value.class_name();
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

std::string quoted(const std::string& text) {
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
    case TorchValue::Kind::kString: return quoted(value.as_string(""));
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

bool is_set(const TorchValue* value) {
  return value != nullptr && !value->is_none() && !(value->kind() == TorchValue::Kind::kBool && !value->as_bool("")) &&
         !(value->is_sequence() && value->items().empty());
}

bool equal_ints(const TorchValue* a, const TorchValue* b) {
  return a != nullptr && b != nullptr && a->kind() == TorchValue::Kind::kInt && b->kind() == TorchValue::Kind::kInt &&
         a->as_int("") == b->as_int("");
}

// Upstream fills in what follows from other arguments; given both, they would contradict one another.
bool is_derived(const std::string& name, const TorchValue& args) {
  if (name == "train_iters") return is_set(args.find("train_samples"));
  if (name == "lr_decay_iters")
    return is_set(args.find("train_samples")) || equal_ints(args.find(name), args.find("train_iters"));
  if (name == "lr_decay_samples") return equal_ints(args.find(name), args.find("train_samples"));
  if (name == "lr_warmup_iters" || name == "lr_warmup_samples") {
    const TorchValue* value = args.find(name);
    return value->kind() == TorchValue::Kind::kInt && value->as_int("") == 0;
  }
  return false;
}

}  // namespace

std::string toml_of_arguments(const TorchValue& args, const std::string& origin) {
  // Rows that exist decide the names: older and newer programs know different ones.
  plan::RunConfig config;
  OptionTable table("espalier train gpt", "");
  plan::add_gpt_options(table, config);
  std::string toml;
  const auto add = [&](const std::string& name, const std::string& value) { toml += name + " = " + value + "\n"; };
  for (const char* name : kArguments) {
    const TorchValue* value = args.is_none() ? nullptr : args.find(name);
    if (!is_set(value) || is_derived(name, args)) continue;
    if (table.find(std::string("--") + name) == nullptr) continue;
    if (std::string(name) == "position_embedding_type") {
      add(name, quoted(position_type(*value, origin)));
      continue;
    }
    const auto text = toml_of(*value);
    if (!text)
      throw UserError(
          concat(origin, ": args.", name, ": expected a value or a list of values, found ", value->describe()),
          ExitCode::kBadData);
    add(name, *text);
  }
  const TorchValue* fused = args.is_none() ? nullptr : args.find("bias_gelu_fusion");
  if (fused != nullptr && fused->kind() == TorchValue::Kind::kBool && !fused->as_bool(""))
    add("no_bias_gelu_fusion", "true");
  return toml;
}

store::TorchPairs namespace_of(const plan::RunConfig& config, const OptionTable& table) {
  store::TorchPairs pairs;
  const auto put = [&](const std::string& key, TorchValue value) {
    pairs.emplace_back(TorchValue::string(key), std::move(value));
  };
  const auto value_of = [](const Option& row, const std::string& word) {
    switch (row.kind()) {
      case OptionKind::kFlag: return TorchValue::boolean(word == "true");
      case OptionKind::kInteger: return TorchValue::integer(std::stoll(word));
      case OptionKind::kNumber: return TorchValue::real(std::stod(word));
      default: return TorchValue::string(word);
    }
  };
  for (const char* name : kArguments) {
    const Option* row = table.find(std::string("--") + name);
    const std::string key = name;
    const bool is_activation =
        key == "swiglu" || key == "glu_activation" || key == "squared_relu" || key == "openai_gelu";
    if (row == nullptr || row->effect() != OptionEffect::kUsed || key.ends_with("parallel_size") || row->key() != key ||
        is_activation)
      continue;
    const std::vector<std::string> words = row->values();
    if (key == "position_embedding_type") {  // Megatron-DeepSpeed compares members of its enum
      const std::string type = words.at(0) == "learned_absolute" ? "absolute" : words.at(0);
      put(key, TorchValue::global("megatron.enums.PositionEmbeddingType." + type));
    } else if (row->is_list()) {
      store::TorchItems items;
      for (const std::string& word : words) items.push_back(value_of(*row, word));
      put(key, items.empty() ? TorchValue() : TorchValue::list(items));
    } else {
      put(key, words.empty() ? TorchValue() : value_of(*row, words[0]));
    }
  }
  using spec::Activation;
  const Activation activation = config.model.activation;
  put("bias_gelu_fusion", TorchValue::boolean(activation == Activation::kGeluTanh));
  put("swiglu", TorchValue::boolean(activation == Activation::kSwiglu));
  put("squared_relu", TorchValue::boolean(activation == Activation::kSquaredRelu));
  const char* gated = activation == Activation::kGeglu   ? "geglu"
                      : activation == Activation::kReglu ? "reglu"
                      : activation == Activation::kLiglu ? "liglu"
                                                         : nullptr;
  put("glu_activation", gated == nullptr ? TorchValue() : TorchValue::string(gated));
  return pairs;
}

MegatronOptions megatron_options(const TorchValue& args, const std::string& origin,
                                 const std::vector<std::string>& more) {
  MegatronOptions options;
  OptionTable table("espalier train gpt", "");
  table.say_notes(false);
  plan::add_gpt_options(table, options.config);
  Problems problems;
  table.parse_toml(toml_of_arguments(args, origin), origin + ": args", problems);
  problems.raise(ExitCode::kBadData);
  table.parse(more, problems);
  plan::resolve(options.config, table, problems);
  problems.raise(ExitCode::kBadData);
  options.toml = table.to_toml();
  const TorchValue* gated = args.is_none() ? nullptr : args.find("glu_activation");
  options.activated_half_last = is_set(gated);
  return options;
}

}  // namespace espalier::convert
