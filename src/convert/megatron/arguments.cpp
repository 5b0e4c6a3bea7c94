#include "convert/megatron/arguments.h"

#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "config/run_options.h"
#include "convert/megatron/internal/model_arguments.h"
#include "convert/model_config.h"

namespace espalier::convert {
namespace {

using store::TorchValue;

// Names of attributes that say of any run what is learnt; each is an option of the same name, or another spelling of
// one.
constexpr const char* kRunArguments[] = {"make_vocab_size_divisible_by",
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

const MegatronCodec& codec_of_run(const config::RunConfig& run) { return formats_of(*run.family).megatron; }

// TOML, as in a recipe. `origin` names the file for messages. UserError (kBadData) that names arguments of models that
// no option here makes.
std::string toml_of_arguments(const TorchValue& args, const std::string& origin, const FamilyFormats& formats) {
  if (args.is_none()) return "";
  refuse_other_models(args, origin);
  ArgumentLines lines(*formats.family, origin);
  formats.megatron.add_lines(args, lines);
  for (const char* name : kRunArguments)
    if (is_set(args.find(name)) && !is_derived(name, args)) lines.add_argument(args, name);
  return lines.text();
}

TorchValue value_of(const Option& row, const std::string& word) {
  switch (row.kind()) {
    case OptionKind::kFlag: return TorchValue::boolean(word == "true");
    case OptionKind::kInteger: return TorchValue::integer(std::stoll(word));
    case OptionKind::kNumber: return TorchValue::real(std::stod(word));
    default: return TorchValue::string(word);
  }
}

// The values of options that have such an attribute, under its name.
void put_option(const OptionTable& table, const std::string& name, store::TorchPairs& pairs) {
  const Option* row = table.find("--" + name);
  if (row == nullptr || row->effect() != OptionEffect::kUsed || name.ends_with("parallel_size") || row->key() != name)
    return;
  const std::vector<std::string> words = row->values();
  TorchValue value;
  if (name == "position_embedding_type") {  // Megatron-DeepSpeed compares members of its enum
    const std::string type = words.at(0) == "learned_absolute" ? "absolute" : words.at(0);
    value = TorchValue::global("megatron.enums.PositionEmbeddingType." + type);
  } else if (row->is_list()) {
    store::TorchItems items;
    for (const std::string& word : words) items.push_back(value_of(*row, word));
    value = items.empty() ? TorchValue() : TorchValue::list(items);
  } else {
    value = words.empty() ? TorchValue() : value_of(*row, words[0]);
  }
  pairs.emplace_back(TorchValue::string(name), value);
}

// Files that the arguments name may be on another machine; those of the command line are meant to be here.
void check_given_files(const OptionTable& table, Problems& problems) {
  for (const char* name : {"--vocab-file", "--merge-file", "--tokenizer-model", "--tokenizer-name-or-path"})
    if (const Option* row = table.find(name); row != nullptr && row->given() && row->source() == "command line")
      for (const std::string& file : row->values())
        if (!std::filesystem::exists(file)) problems.add(name, " ", file, " (command line): there is no such file");
}

}  // namespace

store::TorchPairs namespace_of(const config::RunConfig& config, const OptionTable& table) {
  const MegatronCodec& codec = codec_of_run(config);
  store::TorchPairs pairs;
  for (const char* name : codec.arguments)
    if (!codec.spelled_apart.contains(name)) put_option(table, name, pairs);
  for (const char* name : kRunArguments) put_option(table, name, pairs);
  codec.put_arguments(config, pairs);
  return pairs;
}

constexpr const char* kRopeScaling = "--rope-scaling-";

std::vector<std::string> unsaid_options(const config::RunConfig& config, const OptionTable& table) {
  const TorchValue args = TorchValue::record("argparse.Namespace", {}, TorchValue::dict(namespace_of(config, table)));
  config::RunOptions found(*config.family);
  Problems problems;  // of the run: arguments keep no layout, so that not all checks can pass
  found.table.parse_toml(toml_of_arguments(args, "args", formats_of(*config.family)), "args", problems);
  config::resolve(found.config, found.table, problems);
  if (is_same_model(model_of(found.config), model_of(config))) return {};
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
                                 const std::vector<std::string>& more, const FamilyFormats& formats) {
  config::RunOptions run(*formats.family);
  OptionTable& table = run.table;
  Problems problems;
  table.parse_toml(toml_of_arguments(args, origin, formats), origin + ": args", problems);
  problems.raise(ExitCode::kBadData);
  table.parse(more, problems);
  check_given_files(table, problems);
  problems.raise();
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
