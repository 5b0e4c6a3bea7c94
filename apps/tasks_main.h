// Megatron's tasks/main.py, one script that finetunes, asks a model WIKITEXT103 or LAMBADA, and evaluates retrievers;
// and tools/create_doc_index.py.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace espalier {

// The words after the script's name -> those of the command here that does it: `train bert-task`, `train ict-task`, or
// `eval` and `index evaluate` without what the checkpoint of --load says itself.
std::vector<std::string> words_of_tasks_main(const std::vector<std::string>& words);

// Likewise to `index COMMAND`.
std::vector<std::string> words_of_indexing(const std::string& command, const std::vector<std::string>& words);

// The words without options (and their values) that only say what the checkpoint of --load says itself - the model, its
// tokenizer, how it is run -, but for those of `kept`; reports which were left out. For a script of Megatron's that
// uses a model. `options`, which take a value, and `flags` are left out as well.
std::vector<std::string> without_options_of_the_checkpoint(const std::vector<std::string>& words,
                                                           const std::set<std::string>& kept,
                                                           const std::set<std::string>& options = {},
                                                           const std::set<std::string>& flags = {});

// Takes an option and its values out of `words`; nothing where it is not there. The last of several holds.
std::optional<std::vector<std::string>> take_out(std::vector<std::string>& words, const std::string& option);

}  // namespace espalier
