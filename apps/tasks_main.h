// Megatron's tasks/main.py: one script that finetunes, and evaluates a model on WIKITEXT103 or LAMBADA.
#pragma once

#include <string>
#include <vector>

namespace espalier {

// The words after the script's name -> those of the command here that does it: `train bert-task`, or `eval` without
// what the checkpoint of --load says itself.
std::vector<std::string> words_of_tasks_main(const std::vector<std::string>& words);

}  // namespace espalier
