// Megatron's tasks/main.py, one script that finetunes, asks a model WIKITEXT103 or LAMBADA, and evaluates retrievers;
// and tools/create_doc_index.py.
#pragma once

#include <string>
#include <vector>

namespace espalier {

// The words after the script's name -> those of the command here that does it: `train bert-task`, `train ict-task`, or
// `eval` and `index evaluate` without what the checkpoint of --load says itself.
std::vector<std::string> words_of_tasks_main(const std::vector<std::string>& words);

// Likewise to `index COMMAND`.
std::vector<std::string> words_of_indexing(const std::string& command, const std::vector<std::string>& words);

}  // namespace espalier
