// Scripts of Argonne's examples/detxoify_lm that are more than another name of a command here.
#pragma once

#include <string>
#include <vector>

namespace espalier {

// generate_samples_gpt.py: `generate` without what the checkpoint of --load says itself.
std::vector<std::string> words_of_generate_samples(const std::vector<std::string>& words);

// finetune_gpt.py: `train gpt`. Its --data-path2, of which the script takes 98:100 of the documents for validation,
// becomes weighted split paths.
std::vector<std::string> words_of_finetune_gpt(const std::vector<std::string>& words);

}  // namespace espalier
