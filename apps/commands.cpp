#include "commands.h"

#include <map>

namespace espalier {
namespace {

using Words = std::vector<std::string>;

// Names of Megatron's scripts, so that its launch lines work with only the interpreter replaced.
const std::map<std::string, Words> kAliases = {
    {"pretrain_gpt", {"train", "gpt"}},   {"pretrain_gpt_alcf", {"train", "gpt"}},  // Argonne's
    {"pretrain_llama", {"train", "gpt"}}, {"pretrain_bert", {"train", "bert"}},
    {"pretrain_t5", {"train", "t5"}},     {"preprocess_data", {"preprocess"}},
};

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
  if (words.empty()) return words;
  if (const auto alias = kAliases.find(script_name(words[0])); alias != kAliases.end()) {
    words.erase(words.begin());
    words.insert(words.begin(), alias->second.begin(), alias->second.end());
  }
  return words;
}

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {"tokenizer", "text to ids and back, what a tokenizer is, and a new one from text", tokenizer_main},
      {"preprocess", "JSONL text to the token files that training reads", preprocess_main},
      {"data", "look into token files, check and merge them", data_main},
      {"train", "train a model: train gpt OPTIONS", train_main},
      {"launch", "start ranks and watch them: launch --nproc-per-node N train gpt OPTIONS", launch_main},
      {"plan", "what a training run needs of every process, before it runs: plan gpt OPTIONS", plan_main},
      {"submit", "write a job script for SLURM or PBS and submit it: submit --nodes N train gpt OPTIONS", submit_main},
      {"parity", "repeat a run in several layouts and compare: parity gpt --layouts L1,L2", parity_main},
      {"checkpoint", "inspect, verify, compare and prune checkpoints", checkpoint_main},
      {"generate", "continue prompts with a trained model", generate_main},
      {"completion", "print completion for a shell: completion bash", completion_main},
  };
  return list;
}

}  // namespace espalier
