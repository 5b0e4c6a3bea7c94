#include "apps/tasks_main.h"

#include "base/format.h"
#include "base/log.h"

namespace espalier {
namespace {

// Of a model, its tokenizer and how it is run: the script wants them, and the checkpoint here holds them.
const std::set<std::string>& options_of_the_checkpoint() {
  static const std::set<std::string> names = {"--num-layers",
                                              "--hidden-size",
                                              "--ffn-hidden-size",
                                              "--num-attention-heads",
                                              "--kv-channels",
                                              "--max-position-embeddings",
                                              "--position-embedding-type",
                                              "--make-vocab-size-divisible-by",
                                              "--init-method-std",
                                              "--hidden-dropout",
                                              "--attention-dropout",
                                              "--tokenizer-type",
                                              "--tokenizer-name-or-path",
                                              "--vocab-file",
                                              "--merge-file",
                                              "--micro-batch-size",
                                              "--global-batch-size",
                                              "--tensor-model-parallel-size",
                                              "--pipeline-model-parallel-size",
                                              "--log-interval",
                                              "--seed",
                                              "--num-workers",
                                              "--distributed-backend",
                                              "--DDP-impl",
                                              "--local_rank",
                                              "--activations-checkpoint-method",
                                              "--deepspeed_config"};
  return names;
}
const std::set<std::string>& flags_of_the_checkpoint() {
  static const std::set<std::string> names = {"--fp16",
                                              "--bf16",
                                              "--checkpoint-activations",
                                              "--deepspeed",
                                              "--embed-layernorm",
                                              "--finetune",
                                              "--no-load-optim",
                                              "--no-load-rng",
                                              "--no-bias-gelu-fusion",
                                              "--no-bias-dropout-fusion",
                                              "--no-masked-softmax-fusion",
                                              "--attention-softmax-in-fp32",
                                              "--apply-query-key-layer-scaling"};
  return names;
}

std::string name_of(const std::string& word) { return word.substr(0, word.find('=')); }

std::string value_after(const std::vector<std::string>& words, const std::string& name) {
  for (size_t at = 0; at < words.size(); ++at) {
    if (words[at] == name && at + 1 < words.size()) return words[at + 1];
    if (words[at].starts_with(name + "=")) return words[at].substr(name.size() + 1);
  }
  return "";
}

using Names = std::set<std::string>;

}  // namespace

std::vector<std::string> without_options_of_the_checkpoint(const std::vector<std::string>& words, const Names& kept,
                                                           const Names& options, const Names& flags) {
  std::vector<std::string> result, left_out;
  for (size_t at = 0; at < words.size(); ++at) {
    const std::string name = name_of(words[at]);
    const bool takes_value = options_of_the_checkpoint().contains(name) || options.contains(name);
    const bool goes = takes_value || flags_of_the_checkpoint().contains(name) || flags.contains(name);
    if (!goes || kept.contains(name)) {
      result.push_back(words[at]);
      continue;
    }
    left_out.push_back(name);
    if (takes_value && name == words[at]) ++at;  // the value is a word of its own
  }
  if (!left_out.empty()) log_info("no effect, as the checkpoint of --load says it: ", join(left_out, " "));
  return result;
}

std::optional<std::vector<std::string>> take_out(std::vector<std::string>& words, const std::string& option) {
  std::optional<std::vector<std::string>> values;
  for (size_t at = 0; at < words.size();) {
    const bool joined = words[at].starts_with(option + "=");
    if (words[at] != option && !joined) {
      ++at;
      continue;
    }
    values.emplace();
    if (joined) values->push_back(words[at].substr(option.size() + 1));
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
    while (!joined && at < words.size() && !words[at].starts_with("--")) {
      values->push_back(words[at]);
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return values;
}

namespace {

std::vector<std::string> after(std::vector<std::string> command, const std::vector<std::string>& rest) {
  command.insert(command.end(), rest.begin(), rest.end());
  return command;
}

}  // namespace

std::vector<std::string> words_of_indexing(const std::string& command, const std::vector<std::string>& words) {
  static const Names options = {"--seq-length", "--biencoder-projection-dim", "--ict-head-size"};
  static const Names flags = {"--biencoder-shared-query-context-model", "--retriever-score-scaling"};
  return after({"index", command}, without_options_of_the_checkpoint(words, {}, options, flags));
}

std::vector<std::string> words_of_tasks_main(const std::vector<std::string>& words) {
  const std::string task = value_after(words, "--task");
  if (task == "WIKITEXT103" || task == "LAMBADA") return after({"eval"}, without_options_of_the_checkpoint(words, {}));
  if (task == "RETRIEVER-EVAL" || task == "ICT-ZEROSHOT-NQ") return words_of_indexing("evaluate", words);
  return after({"train", task == "RET-FINETUNE-NQ" ? "ict-task" : "bert-task"}, words);
}

}  // namespace espalier
