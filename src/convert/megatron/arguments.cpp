#include "convert/megatron/arguments.h"

#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/literal.h"
#include "config/run_options.h"
#include "convert/megatron/internal/model_arguments.h"
#include "convert/model_config.h"

namespace espalier::convert {
namespace {

using store::TorchValue;

// Names of attributes; each is an option of the same name, or another spelling of one.
constexpr const char* kArguments[] = {"num_layers",
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
                                      "make_vocab_size_divisible_by",
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

bool is_false(const TorchValue& args, const char* name) {
  const TorchValue* value = args.find(name);
  return value != nullptr && value->kind() == TorchValue::Kind::kBool && !value->as_bool("");
}

// Upstream's parser always fills these in and reads them only beside another argument.
bool is_unread(const std::string& name, const TorchValue& args) {
  if (name == "num_query_groups") return is_false(args, "group_query_attention");
  if (name == "rope_scaling_factor") return !is_set(args.find("use_rope_scaling"));
  return false;
}

// NVIDIA's older arguments win over the type, whose default is learned positions. "": nothing says.
std::string positions_of(const TorchValue& args, const std::string& origin) {
  const TorchValue* type = args.find("position_embedding_type");
  const std::string name = is_set(type) ? position_type(*type, origin) : "";
  if (!name.empty() && name != "absolute" && name != "learned_absolute") return name;
  if (is_set(args.find("use_rotary_position_embeddings"))) return "rotary";
  return is_false(args, "add_position_embedding") ? "none" : name;
}

// Nothing: no value that TOML can hold.
std::optional<std::string> value_of(const std::string& name, const TorchValue& value) {
  if (name != "window_size" || !value.is_sequence()) return toml_of(value);
  std::vector<std::string> words;  // (LEFT, RIGHT)
  for (const TorchValue& item : value.items()) {
    if (item.kind() != TorchValue::Kind::kInt) return std::nullopt;
    words.push_back(std::to_string(item.as_int("")));
  }
  return quoted(join(words, ","));
}

// Lines of TOML, each option once.
class ArgumentLines {
 public:
  explicit ArgumentLines(const std::string& origin) : origin_(origin) {}
  // Rows that exist decide the names: older and newer programs know different ones.
  bool knows(const std::string& name) const { return table_.find("--" + name) != nullptr; }
  void add(const std::string& name, const std::string& value) {
    const auto [said, is_first] = said_.emplace(table_.find("--" + name), std::pair{name, value});
    if (is_first)
      text_ += concat(name, " = ", value, "\n");
    else if (said->second.second != value)
      throw UserError(concat(origin_, ": args.", name, ": expected ", said->second.second, ", as args.",
                             said->second.first, " says, found ", value),
                      ExitCode::kBadData);
  }
  const std::string& text() const { return text_; }

 private:
  std::string origin_, text_;
  config::RunOptions options_{families::gpt_family()};
  const OptionTable& table_ = options_.table;
  std::map<const Option*, std::pair<std::string, std::string>> said_;
};

}  // namespace

std::string toml_of_arguments(const TorchValue& args, const std::string& origin) {
  if (args.is_none()) return "";
  refuse_other_models(args, origin);
  ArgumentLines lines(origin);
  if (const std::string positions = positions_of(args, origin); !positions.empty())
    lines.add("position_embedding_type", quoted(positions));
  for (const char* name : kArguments) {
    const TorchValue* value = args.find(name);
    if (!is_set(value) || !lines.knows(name) || is_derived(name, args) || is_unread(name, args)) continue;
    if (std::string(name) == "position_embedding_type" || std::string(name) == "use_rotary_position_embeddings")
      continue;
    const auto text = value_of(name, *value);
    if (!text)
      throw UserError(
          concat(origin, ": args.", name, ": expected a value or a list of values, found ", value->describe()),
          ExitCode::kBadData);
    lines.add(name, *text);
  }
  if (is_false(args, "add_bias_linear")) lines.add("disable_bias_linear", "true");
  if (is_false(args, "bias_gelu_fusion")) lines.add("no_bias_gelu_fusion", "true");
  return lines.text();
}

store::TorchPairs namespace_of(const config::RunConfig& config, const OptionTable& table) {
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
    const bool is_spelled_below = key == "group_query_attention" || key == "num_query_groups" ||
                                  key == "normalization" || key == "window_size" || is_activation;
    if (row == nullptr || row->effect() != OptionEffect::kUsed || key.ends_with("parallel_size") || row->key() != key ||
        is_spelled_below)
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
  const families::GptConfig model = families::gpt_config(config);
  const Activation activation = model.activation;
  put("bias_gelu_fusion", TorchValue::boolean(activation == Activation::kGeluTanh));
  put("swiglu", TorchValue::boolean(activation == Activation::kSwiglu));
  put("squared_relu", TorchValue::boolean(activation == Activation::kSquaredRelu));
  const char* gated = activation == Activation::kGeglu   ? "geglu"
                      : activation == Activation::kReglu ? "reglu"
                      : activation == Activation::kLiglu ? "liglu"
                                                         : nullptr;
  put("glu_activation", gated == nullptr ? TorchValue() : TorchValue::string(gated));
  put_names_of_nvidia(model, pairs);
  return pairs;
}

constexpr const char* kRopeScaling = "--rope-scaling-";

std::vector<std::string> unsaid_options(const config::RunConfig& config, const OptionTable& table) {
  const TorchValue args = TorchValue::record("argparse.Namespace", {}, TorchValue::dict(namespace_of(config, table)));
  config::RunOptions found(families::gpt_family());
  Problems problems;  // of the run: arguments keep no layout, so that not all checks can pass
  found.table.parse_toml(toml_of_arguments(args, "args"), "args", problems);
  config::resolve(found.config, found.table, problems);
  if (is_same_model(families::gpt_config(found.config), families::gpt_config(config))) return {};
  std::vector<std::string> unsaid;
  for (const auto& row : table.options()) {
    if (row->group() != table.find("--num-layers")->group() || row->effect() != OptionEffect::kUsed) continue;
    if (row->name() == "--pad-vocab-size-to" || row->values() == found.table.find(row->name())->values()) continue;
    const std::string option = concat(row->name(), " ", join(row->values(), " "));
    // One scaling of positions is one problem, however many options it has.
    const bool goes_on =
        row->name().starts_with(kRopeScaling) && !unsaid.empty() && unsaid.back().starts_with(kRopeScaling);
    if (goes_on)
      unsaid.back() += " " + option;
    else
      unsaid.push_back(option);
  }
  if (unsaid.empty()) unsaid.push_back("a part of the model");
  return unsaid;
}

MegatronOptions megatron_options(const TorchValue& args, const std::string& origin,
                                 const std::vector<std::string>& more) {
  config::RunOptions run(families::gpt_family());
  OptionTable& table = run.table;
  Problems problems;
  table.parse_toml(toml_of_arguments(args, origin), origin + ": args", problems);
  problems.raise(ExitCode::kBadData);
  table.parse(more, problems);
  // Nothing says how long to train: what there is, is a model.
  const config::TrainingConfig& training = run.config.training;
  if (problems.empty() && !training.train_iters && !training.train_samples)
    table.set("--eval-only", "true", origin, problems);
  config::resolve(run.config, table, problems);
  problems.raise(ExitCode::kBadData);
  MegatronOptions options{.config = run.config, .toml = table.to_toml()};
  const TorchValue* gated = args.is_none() ? nullptr : args.find("glu_activation");
  options.activated_half_last = is_set(gated);
  return options;
}

}  // namespace espalier::convert
