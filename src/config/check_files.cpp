// What must exist, or be possible to create, before a run starts; token files are the data library's to check.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/foreign_checkpoint.h"
#include "base/format.h"
#include "base/log.h"
#include "config/resume.h"
#include "config/run_config.h"
#include "store/beginning.h"

namespace espalier::config {
namespace {

namespace fs = std::filesystem;

struct FileChecks {
  const RunConfig& config;
  const OptionTable& table;
  Problems& problems;

  std::string origin(const char* name) const { return table.origin(name); }
  bool exists(const fs::path& path) const {
    std::error_code ignored;
    return fs::exists(path, ignored);
  }

  static bool is_hugging_face(const TokenizerConfig& tokenizer) {
    return tokenizer.type == "HFTokenizer" || tokenizer.type == "HuggingFaceTokenizer";
  }
  void check_tokenizer();
  void check_hugging_face(const char* name, const std::string& path);
  void check_folder_to_write(const char* name, const std::string& folder);
  bool is_blank(const char* name, const std::string& folder);
  // The command says how the run began; it continues from its own checkpoints.
  bool has_gone_on() const {
    return !config.data.eval_only && store::has_gone_on(beginning_of(config), config.checkpoint.save);
  }
  void check_save();
  void check_load();
  void check_finetune();
};

void FileChecks::check_tokenizer() {
  const TokenizerConfig& tokenizer = config.tokenizer;
  if (table.find("--tokenizer-type")->unclear()) return;
  const auto check_file = [&](const char* name, const std::string& file, const char* meaning) {
    if (file.empty() && !config.validate_only)
      problems.add(name, " is required with --tokenizer-type ", tokenizer.type, ": ", meaning);
    if (!file.empty() && !exists(file)) problems.add(origin(name), ": there is no such file");
  };
  if (tokenizer.type == "GPT2BPETokenizer") {
    check_file("--vocab-file", tokenizer.vocab_file, "vocab.json");
    check_file("--merge-file", tokenizer.merge_file, "merges.txt");
    return;
  }
  if (tokenizer.type == "NullTokenizer") {
    if (!tokenizer.vocab_size) problems.add("--vocab-size is required with --tokenizer-type NullTokenizer");
    return;
  }
  if (tokenizer.type.rfind("BertWordPiece", 0) == 0)
    return check_file("--vocab-file", tokenizer.vocab_file, "vocab.txt");
  const bool named_by_path = tokenizer.type == "PretrainedFromHF";
  if (!named_by_path && !is_hugging_face(tokenizer)) {
    const char* meaning = tokenizer.type == "TikTokenizer" ? "ranks of tiktoken" : "a SentencePiece .model";
    return check_file("--tokenizer-model", tokenizer.model_file, meaning);
  }
  // NVIDIA and Argonne say --tokenizer-model where BigScience says --tokenizer-name-or-path.
  const bool by_model = !named_by_path && tokenizer.name_or_path.empty();
  check_hugging_face(by_model ? "--tokenizer-model" : "--tokenizer-name-or-path",
                     by_model ? tokenizer.model_file : tokenizer.name_or_path);
}

void FileChecks::check_hugging_face(const char* name, const std::string& path) {
  std::error_code error;
  if (path.empty()) {
    if (!config.validate_only) {
      problems.add(name, " is required with --tokenizer-type ", config.tokenizer.type,
                   ": tokenizer.json or its folder");
    }
  } else if (!exists(path)) {
    problems.add(origin(name),
                 ": there is no such file or folder, and names of the Hugging Face Hub "
                 "are not fetched; download its tokenizer.json and name that file");
  }
}

// --save "$SAVE", and SAVE is not set: such a run would save nothing.
bool FileChecks::is_blank(const char* name, const std::string& folder) {
  if (!table.find(name)->given() || folder.find_first_not_of(" \t") != std::string::npos) return false;
  problems.add(name, " (", table.find(name)->source(),
               ") is given and names no folder: is a variable of the script unset? ", "Leave it out, or name one");
  return true;
}

void FileChecks::check_folder_to_write(const char* name, const std::string& folder) {
  if (folder.empty()) return;
  fs::path existing = fs::absolute(folder).lexically_normal();
  std::error_code error;
  while (!fs::exists(existing, error) && existing.has_relative_path()) {
    if (fs::is_symlink(existing, error)) {
      problems.add(origin(name), ": ", existing.string(), " is a link to ", fs::read_symlink(existing, error).string(),
                   ", which does not exist; make that folder, or remove the link");
      return;
    }
    existing = existing.parent_path();
  }
  if (!fs::is_directory(existing, error)) {
    problems.add(origin(name), ": ", existing.string(), " is a file, not a folder");
  } else if (access(existing.c_str(), W_OK | X_OK) != 0) {
    problems.add(origin(name), ": cannot write in ", existing.string());
  }
}

// "step_00001000" -> 1000, or nothing.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with("step_") || name.size() == 5) return std::nullopt;
  if (name.find_first_not_of("0123456789", 5) != std::string::npos || name.size() > 20) return std::nullopt;
  return std::stoll(name.substr(5));
}

// In order; none where there is no such folder.
std::vector<int64_t> complete_steps(const fs::path& run_folder) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_folder, error)) {
    const std::optional<int64_t> step = step_of(entry.path().filename());
    if (step && fs::exists(entry.path() / "manifest.json", error)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// "; runs are below it: a, b", where a folder of runs was given for a run.
std::string runs_below(const fs::path& folder) {
  std::vector<std::string> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error) && !complete_steps(entry.path()).empty()) runs.push_back(entry.path().string());
  std::sort(runs.begin(), runs.end());
  if (runs.size() > 8) runs.resize(8), runs.push_back("...");
  return runs.empty() ? "" : "; there are runs below it: " + join(runs, ", ");
}

// A launch line must not begin at iteration 0 once more where another one has trained. A checkpoint of step 0 is an
// imported one.
void FileChecks::check_finetune() {
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (!checkpoint.finetune || checkpoint.save.empty() || has_gone_on()) return;
  const std::vector<int64_t> steps = complete_steps(checkpoint.save);
  if (steps.empty() || steps.back() == 0) return;
  problems.add("--finetune would start again at iteration 0, and ", origin("--save"),
               " already holds checkpoints up to iteration ", steps.back(),
               ". To continue that run leave out --finetune and give --load ", checkpoint.save,
               "; to start afresh give another --save");
}

// Said before data and model are made, which of a large run takes minutes. Copies in memory may be what a restarted run
// continues from: then its folder may hold checkpoints without --load.
void FileChecks::check_save() {
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (is_blank("--save", checkpoint.save) || checkpoint.save.empty()) return;
  check_folder_to_write("--save", checkpoint.save);
  for (fs::path at = fs::absolute(checkpoint.save).lexically_normal(); at.has_relative_path(); at = at.parent_path())
    if (step_of(at.filename()) && exists(at / "manifest.json"))
      problems.add(origin("--save"), " is in a checkpoint: ", at.string(), " belongs to the run ",
                   at.parent_path().string(), " and goes when that is pruned. Give another folder");
  const std::vector<int64_t> steps = complete_steps(checkpoint.save);
  const bool is_run = !steps.empty() || exists(fs::path(checkpoint.save) / "events.jsonl") ||
                      exists(fs::path(checkpoint.save) / ".lock");
  for (const char* name : {"config.toml", "command.txt"})
    if (!is_run && exists(fs::path(checkpoint.save) / name))
      problems.add(origin("--save"), " is not a run folder, and holds a ", name,
                   ", which the run would replace. Give another folder");
  const auto foreign = is_run ? std::nullopt : describe_foreign_checkpoint(checkpoint.save);
  if (foreign) problems.add(origin("--save"), " is not the folder of a run: ", *foreign);
  const std::string others = is_run ? "" : runs_below(checkpoint.save);
  if (!others.empty() && table.says_notes())
    warn_once(concat(origin("--save"), " holds runs, and becomes one itself", others,
                     ". A folder of its own keeps them apart"));
  const bool begins = checkpoint.load.empty() && !checkpoint.finetune && !config.data.eval_only && !config.plan_only;
  if (begins && !checkpoint.non_persistent_save_interval && !steps.empty())
    problems.add(origin("--save"), " already holds checkpoints up to iteration ", steps.back(),
                 ", and this run does not continue from them. Give --load ", checkpoint.save,
                 " to continue, or another --save");
}

void FileChecks::check_load() {
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (is_blank("--load", checkpoint.load) || checkpoint.load.empty() || has_gone_on()) return;
  std::error_code error;
  const bool may_be_missing =
      !checkpoint.save.empty() && !checkpoint.ckpt_step &&
      fs::absolute(checkpoint.load).lexically_normal() == fs::absolute(checkpoint.save).lexically_normal();
  if (!fs::is_directory(checkpoint.load, error)) {
    if (exists(checkpoint.load))
      problems.add(origin("--load"), " is a file; give the run folder, or a step folder in it");
    else if (!may_be_missing)
      problems.add(origin("--load"), ": there is no such folder");
    return;
  }
  if (exists(fs::path(checkpoint.load) / "manifest.json")) return;  // a step folder
  const std::vector<int64_t> steps = complete_steps(checkpoint.load);
  if (const auto foreign = steps.empty() ? describe_foreign_checkpoint(checkpoint.load) : std::nullopt) {
    problems.add(origin("--load"), ": ", *foreign);
    return;
  }
  std::string listed;
  for (const int64_t step : steps) listed += concat(listed.empty() ? "" : ", ", step);
  if (steps.empty() && !may_be_missing)
    problems.add(origin("--load"), ": the folder holds no complete checkpoint (step_*/manifest.json)",
                 runs_below(checkpoint.load));
  // A run that began at that step continues from its newest, and may have removed it since.
  const bool has_begun_there =
      checkpoint.ckpt_step && exists(fs::path(checkpoint.load) / concat(".ckpt_step_", *checkpoint.ckpt_step));
  if (checkpoint.ckpt_step && !has_begun_there && !steps.empty() &&
      std::find(steps.begin(), steps.end(), *checkpoint.ckpt_step) == steps.end())
    problems.add(origin("--ckpt-step"), " is not in ", checkpoint.load, "; its complete steps are ", listed);
}

}  // namespace

void check_files(const RunConfig& config, const OptionTable& table, Problems& problems) {
  FileChecks checks{config, table, problems};
  checks.check_tokenizer();
  checks.check_load();
  checks.check_finetune();
  checks.check_save();
  checks.check_folder_to_write("--tensorboard-dir", config.logging.tensorboard_dir);
  checks.check_folder_to_write("--data-cache-path", config.data.cache_path);
}

}  // namespace espalier::config
