#include "apps/commands.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "apps/detoxify/scripts.h"
#include "apps/retro/scripts.h"
#include "apps/tasks_main.h"
#include "base/console.h"
#include "base/error.h"
#include "base/format.h"
#include "families/registry.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;

// Names of Megatron's scripts, so that its launch lines work with only the interpreter replaced.
const std::map<std::string, Words> kAliases = {
    {"pretrain_gpt", {"train", "gpt"}},
    {"pretrain_gpt_alcf", {"train", "gpt"}},  // Argonne's
    {"pretrain_llama", {"train", "gpt"}},
    {"pretrain_bert", {"train", "bert"}},
    {"pretrain_t5", {"train", "t5"}},
    {"pretrain_ict", {"train", "ict"}},
    {"pretrain_retro", {"train", "retro"}},
    {"preprocess_data", {"preprocess"}},
    {"pretrain_prefix_lm", {"train", "gpt", "--objective", "prefix"}},
    {"perspective_api_annotate", {"detoxify", "score"}},  // Argonne's examples/detxoify_lm
    {"filter-selfgeneration", {"detoxify", "filter"}},
    {"finetune_t0", {"train", "gpt", "--objective", "multitask"}},  // what BLOOMZ was made with, of a branch
    {"finetune_t0_non_causal_decoder", {"train", "gpt", "--objective", "multitask", "--prefixlm"}},
};

const std::vector<Command>& model_families() {
  static const std::vector<Command> list = [] {
    std::vector<Command> commands;
    for (const config::Family* family : families::all_families())
      commands.push_back({family->name, family->kin, nullptr});
    return commands;
  }();
  return list;
}

// "tools/preprocess_data.py" -> "preprocess_data"
std::string script_name(const std::string& word) {
  const std::string name = word.substr(word.find_last_of('/') + 1);
  return name.ends_with(".py") ? name.substr(0, name.size() - 3) : name;
}

}  // namespace

std::vector<std::string> canonical_words(Words words) {
  if (!words.empty() && words[0] == "-u") words.erase(words.begin());  // Python's unbuffered output
  if (words.size() > 1 && words[0] == "-m") {
    words.erase(words.begin());
    if (words[0] == "torch.distributed.run" || words[0] == "torch.distributed.launch") words[0] = "launch";
  }
  // "launch espalier train gpt": the name of this program is not a command, but it is what people write.
  if (words.size() > 1 && script_name(words[0]) == "espalier") words.erase(words.begin());
  if (words.empty()) return words;
  if (words[0].ends_with("tasks/main.py")) {  // any program may have a main.py
    words.erase(words.begin());
    return words_of_tasks_main(words);
  }
  if (script_name(words[0]) == "create_doc_index") {
    words.erase(words.begin());
    return words_of_indexing("embed", words);
  }
  if (words[0].ends_with("tools/retro/main.py")) {
    words.erase(words.begin());
    return words_of_retro_main(words);
  }
  if (script_name(words[0]) == "generate_samples_gpt") {
    words.erase(words.begin());
    return words_of_generate_samples(words);
  }
  if (script_name(words[0]) == "finetune_gpt") {
    words.erase(words.begin());
    return words_of_finetune_gpt(words);
  }
  if (const auto alias = kAliases.find(script_name(words[0])); alias != kAliases.end()) {
    words.erase(words.begin());
    words.insert(words.begin(), alias->second.begin(), alias->second.end());
  }
  return words;
}

std::string describe(const std::vector<Command>& list) {
  constexpr size_t kWidth = 100;
  size_t longest = 0;
  for (const Command& command : list) longest = std::max(longest, std::string(command.name).size());
  const size_t indent = longest + 4;
  std::string text;
  for (const Command& command : list) {
    const std::string name = command.name;
    text += "  " + name + std::string(indent - 2 - name.size(), ' ') +
            wrap_text(command.summary, indent, indent, kWidth) + "\n";
  }
  return text;
}

int run_subcommand(const std::string& program, const std::vector<Command>& list, const Words& arguments) {
  const std::string usage = "usage: " + program + " COMMAND [arguments]\n\n" + describe(list) + "\n" + program +
                            " COMMAND --help explains a command.\n";
  if (arguments.empty()) throw UserError("no command\n" + usage, ExitCode::kUsage);
  Words names;
  for (const Command& command : list) {
    if (arguments[0] == command.name) return command.run({arguments.begin() + 1, arguments.end()});
    names.push_back(command.name);
  }
  if (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help" || arguments[0] == "--help-all") {
    std::fputs(usage.c_str(), stdout);
    return 0;
  }
  const Words near = nearest_names(arguments[0], names);
  throw UserError(
      concat("unknown command ", arguments[0], near.empty() ? "" : "; did you mean " + join(near, " or ") + "?",
             near.empty() ? "; " : " ", "the commands of ", program, " are ", join(names, ", ")),
      ExitCode::kUsage);
}

std::vector<Words> all_command_words() {
  std::vector<Words> all;
  for (const Command& command : commands()) {
    if (command.subcommands == nullptr) {
      all.push_back({command.name});
      continue;
    }
    for (const Command& below : command.subcommands()) {
      all.push_back({command.name, below.name});
      if (below.subcommands == nullptr) continue;
      for (const Command& kind : below.subcommands()) all.push_back({command.name, below.name, kind.name});
    }
  }
  return all;
}

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {"tokenizer", "text to ids and back, what a tokenizer is, and a new one from text", tokenizer_main,
       tokenizer_commands},
      {"curate", "raw text to the documents of a training mix: clean, filter, deduplicate", curate_main,
       curate_commands},
      {"preprocess", "JSONL text to the token files that training reads", preprocess_main},
      {"data", "inspect token files, check and merge them", data_main, data_commands},
      {"index", "an index of embeddings, and the rows nearest to queries", index_main, index_commands},
      {"retro", "what a Retro reads: chunks of texts, and which of them are neighbours", retro_main, retro_commands},
      {"recipe", "a recipe of a GPT from one number, its depth: recipe --depth 4", recipe_main},
      {"train", "train a model: train gpt OPTIONS", train_main, model_families},
      {"launch", "start ranks and watch them: launch --nproc-per-node N train gpt OPTIONS", launch_main},
      {"plan", "what a training run needs from every process, before it runs: plan gpt OPTIONS", plan_main,
       model_families},
      {"submit", "write a job script for SLURM or PBS and submit it: submit --nodes N train gpt OPTIONS", submit_main},
      {"parity", "repeat a run in several layouts and compare: parity gpt --layouts L1,L2", parity_main,
       model_families},
      {"replay", "repeat a step of a run, bit for bit, and name the first tensor that differs", replay_main},
      {"runs", "list, show, compare and serve runs from what they recorded", runs_main, runs_commands},
      {"ctl", "control a run in progress: ctl RUN status, save, stop, kill, dump, pause, resume", ctl_main},
      {"watch", "watch runs for months: pulse, room, jobs, backups; tell a person of each incident once", watch_main},
      {"checkpoint", "inspect, verify, compare, prune and convert checkpoints", checkpoint_main, checkpoint_commands},
      {"generate", "continue prompts with a trained model", generate_main},
      {"serve", "serve a trained model over HTTP: OpenAI's and Megatron's interfaces", serve_main},
      {"eval", "ask and score the tasks of an evaluation, with the answers of any engine", eval_main},
      {"detoxify", "score texts by any program, keep the least toxic, and measure a model by RealToxicityPrompts",
       detoxify_main, detoxify_commands},
      {"doctor", "what this machine has for training, what works here and what does not", doctor_main},
      {"completion", "print completion for a shell: completion bash, zsh or fish", completion_main},
      {"version", "versions of the program and of what it was built with", version_main},
      {"help", "this list; help COMMAND explains a command", help_main},
  };
  return list;
}

}  // namespace espalier
