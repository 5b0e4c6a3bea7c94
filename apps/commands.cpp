#include "commands.h"

namespace espalier {

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
      {"tokenizer", "text to ids and back, what a tokenizer is, and a new one from text", tokenizer_main},
      {"preprocess", "JSONL text to the token files that training reads", preprocess_main},
      {"data", "look into token files, check and merge them", data_main},
      {"train", "train a model: train gpt OPTIONS", train_main},
      {"checkpoint", "inspect, verify, compare and prune checkpoints", checkpoint_main},
      {"generate", "continue prompts with a trained model", generate_main},
      {"completion", "print completion for a shell: completion bash", completion_main},
  };
  return list;
}

}  // namespace espalier
