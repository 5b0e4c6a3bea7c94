#include "apps/checkpoint/hf.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include <nlohmann/json.hpp>

#include "apps/become_engine.h"
#include "apps/print_json.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "convert/formats.h"
#include "convert/hf/export.h"
#include "convert/hf/import.h"
#include "convert/partial_folder.h"
#include "store/run_folder.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

enum class Type { kOwn, kFp32, kBf16, kFp16 };

std::optional<store::DType> dtype_of(Type type) {
  switch (type) {
    case Type::kOwn: return std::nullopt;
    case Type::kFp32: return store::DType::kFloat32;
    case Type::kBf16: return store::DType::kBFloat16;
    case Type::kFp16: return store::DType::kFloat16;
  }
  return std::nullopt;
}

void add_type(OptionTable& table, Type& type, const char* help) {
  table.add_choice("--dtype", type,
                   {{"own", Type::kOwn}, {"fp32", Type::kFp32}, {"bf16", Type::kBf16}, {"fp16", Type::kFp16}}, help);
}

// Called while the new folder still has its partial name, which goes with the exception.
void check_logits(const fs::path& step, const fs::path& hf_folder, const char* conversion, bool ema = false,
                  const Words& model_options = {}) {
  Words words = {"--step", step, "--hf", hf_folder, "--conversion", conversion};
  if (ema) words.push_back("--ema");
  if (!model_options.empty()) words.push_back("--");
  words.insert(words.end(), model_options.begin(), model_options.end());
  if (run_engine("compare-hf", words) == 0) return;
  throw UserError(concat("what was written does not compute the same as its source; it was removed. (",
                         "--no-check-logits writes it anyway.)"),
                  ExitCode::kBadData);
}

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void say_moved(const char* what, int64_t num_tensors, int64_t bytes, const Stopwatch& watch) {
  const double size = static_cast<double>(bytes);
  log_info(what, " ", num_tensors, " tensors, ", format_bytes(size), " in ", format_duration(watch.seconds()), " (",
           format_bytes(size / std::max(1e-9, watch.seconds())), "/s)");
}

// What both directions say of a model.
nlohmann::ordered_json facts(const convert::HfModel& model, int64_t num_tensors, int64_t bytes, const Stopwatch& watch,
                             const std::vector<std::string>& notes) {
  return {{"family", model.config.family->name},
          {"model_type", model.codec->model_type},
          {"num_parameters", convert::spec_of(model.config).num_parameters()},
          {"vocab_rows", model.config.vocabulary.padded_size},
          {"num_tensors", num_tensors},
          {"bytes", bytes},
          {"seconds", watch.seconds()},
          {"notes", notes}};
}

constexpr const char* kJsonHelp = "one JSON object: what was read and written, and every note";

}  // namespace

int import_hf_main(const Words& arguments) {
  std::string input, save;
  Type type = Type::kOwn;
  bool check = true;
  convert::ImportOptions options;
  OptionTable table(
      "espalier checkpoint import-hf",
      concat("Makes a run folder from a Hugging Face folder (model_type ", join(convert::hf_model_types(), ", "),
             "). Train with --load --finetune, or generate with --load."));
  table.add("--input", input, "folder with config.json and weights (safetensors or pytorch_model.bin)").required();
  table.add("--save", save, "new run folder; the model becomes its step 0").required();
  table.known_elsewhere({"--load", "--model", "--model-path", "--model-name-or-path", "--checkpoint", "--hf"},
                        "--input");
  table.known_elsewhere({"--output", "--output-dir"}, "--save");
  add_type(table, type, "type of the weights; own: that of most of them");
  table
      .add("--make-vocab-size-divisible-by", options.make_vocab_size_divisible_by,
           "pad the embedding with zero rows to a multiple; otherwise it stays as it is")
      .minimum(1)
      .maximum(1e6);
  table.add("--pad-vocab-size-to", options.pad_vocab_size_to, "pad the embedding with zero rows to this many")
      .minimum(1)
      .maximum(1e9);
  table.add_negative("--no-check-logits", check,
                     "do not compare logits with the source (saves time, and memory for the model in fp32)");
  bool json = false;
  table.add("--json", json, kJsonHelp);
  if (!table.parse(arguments)) return 0;
  options.input = input, options.save = save, options.dtype = dtype_of(type);

  convert::PartialFolder folder(save);
  const Stopwatch watch;
  const convert::ImportReport report = convert::import_hf(options, folder.path());
  for (const std::string& note : report.notes) log_warning(note);
  say_moved(concat("imported a ", report.model.codec->model_type, " model:").c_str(), report.num_tensors, report.bytes,
            watch);
  nlohmann::ordered_json found = facts(report.model, report.num_tensors, report.bytes, watch, report.notes);
  if (check) check_logits(report.step_folder, input, "import");
  folder.commit();
  log_info("saved to ", save);
  found["run_folder"] = save;
  found["step_folder"] = (fs::path(save) / report.step_folder.filename()).string();
  found["logits_compared"] = check;
  if (json) print_json(found);
  return 0;
}

int export_hf_main(const Words& arguments) {
  std::string load, output, family, max_shard_size = "5GB";
  std::optional<int64_t> step;
  Type type = Type::kOwn;
  bool check = true;
  convert::ExportOptions options;
  OptionTable table("espalier checkpoint export-hf",
                    "Makes a Hugging Face folder from a checkpoint. Options of train after -- replace those that it "
                    "was saved with, where transformers cannot express them.");
  table.add("--load", load, "run folder (newest complete step) or step folder").required();
  table.add("--ckpt-step", step, "this step of a run folder");
  table.add("--ema", options.ema, "the moving average of the weights that train --ema has kept");
  table.add("--output", output, "new folder for config.json, weights and tokenizer").required();
  table.known_elsewhere({"--input", "--model", "--model-path", "--checkpoint", "--ckpt"}, "--load");
  table.known_elsewhere({"--save", "--output-dir"}, "--output");
  table.add("--model-type", family, "family of transformers to write; by default derived from the model")
      .choices(convert::hf_model_types())
      .default_text("derived");
  add_type(table, type, "type of the weights; own: that of the checkpoint; fp32: the master weights, if any");
  table.add("--max-shard-size", max_shard_size, "largest file of weights: 5GB, 512MiB");
  table.add("--keep-vocab-padding", options.keep_vocab_padding, "write the rows that pad the vocabulary, too");
  table.add_negative("--no-check-logits", check,
                     "do not compare logits with the checkpoint (saves time, and memory for the model in fp32)");
  bool json = false;
  table.add("--json", json, kJsonHelp);
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes != arguments.end()) options.model_options.assign(dashes + 1, arguments.end());
  Problems problems;
  if (!table.parse({arguments.begin(), dashes}, problems)) return 0;
  const std::optional<int64_t> shard_bytes = parse_bytes(max_shard_size);
  if (!shard_bytes || *shard_bytes == 0) problems.add("--max-shard-size ", max_shard_size, ": use an amount as 5GB");
  problems.raise();
  options.step_folder = store::find_checkpoint(load, step, /*save=*/"")->folder;
  options.max_shard_bytes = *shard_bytes, options.dtype = dtype_of(type);
  options.codec = convert::find_hf_codec(family);

  convert::PartialFolder folder(output);
  const Stopwatch watch;
  const convert::ExportReport report = convert::export_hf(options, folder.path());
  for (const std::string& note : report.notes) log_warning(note);
  say_moved(concat("exported a ", report.model.codec->model_type, " model:").c_str(), report.num_tensors, report.bytes,
            watch);
  nlohmann::ordered_json found = facts(report.model, report.num_tensors, report.bytes, watch, report.notes);
  if (check) check_logits(options.step_folder, folder.path(), "export", options.ema, options.model_options);
  folder.commit();
  log_info("saved to ", output);
  found["step_folder"] = options.step_folder.string();
  found["output"] = output;
  found["ema"] = options.ema;
  found["files"] = report.files;
  found["logits_compared"] = check;
  if (json) print_json(found);
  return 0;
}

}  // namespace espalier
