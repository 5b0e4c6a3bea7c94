// Megatron's tools/retro/main.py, which is run with the options of the BERT that makes its vectors, and has those of
// the GPT beside them as --retro-gpt-*.
#pragma once

#include <string>
#include <vector>

namespace espalier {

// The words of `retro build`: --retro-gpt-NAME becomes --NAME, and what is BERT's goes.
std::vector<std::string> words_of_retro_main(const std::vector<std::string>& words);

}  // namespace espalier
