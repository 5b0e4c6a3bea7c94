// Megatron's tasks/main.py: one script that finetunes, and evaluates a model on WIKITEXT103 or LAMBADA.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace espalier {

// The words after the script's name -> those of the command here that does it: `train bert-task`, or `eval` without
// what the checkpoint of --load says itself.
std::vector<std::string> words_of_tasks_main(const std::vector<std::string>& words);

// The words without options (and their values) that only say what the checkpoint of --load says itself - the model, its
// tokenizer, how it is run -, but for those of `taken`; tells which were left out. Of a script of Megatron's that uses
// a model.
std::vector<std::string> without_options_of_the_checkpoint(const std::vector<std::string>& words,
                                                           const std::set<std::string>& taken);

}  // namespace espalier
