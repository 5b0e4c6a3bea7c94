// Tokenized corpora as prose again, by the rules of the programs whose numbers are to be matched.
#pragma once

#include <string>
#include <string_view>

namespace espalier::eval {

std::string detokenize_wikitext(std::string_view text);       // Megatron's tasks/zeroshot_gpt
std::string detokenize_penn_treebank(std::string_view text);  // likewise
std::string detokenize_general(std::string_view text);        // lm_eval's general_detokenize (mrpc, sst, wsc)

}  // namespace espalier::eval
