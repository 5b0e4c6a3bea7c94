// How much text each id represents: what bits per byte divide by, so that models of different vocabularies compare.
#pragma once

#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace espalier::text {

// By id, the UTF-8 bytes that it adds within a text: " the" has 4, a byte of a character 1, "##ing" 3, a word of BERT
// one more than its letters for the blank before it. Special ids (beginning, end, padding, masks) have 0. Entries up to
// vocab_size(); empty where ids are not text (NullTokenizer). Takes about a microsecond an id.
std::vector<int32_t> bytes_of_ids(const Tokenizer& tokenizer);

}  // namespace espalier::text
