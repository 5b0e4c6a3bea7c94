// One number for what a tokenizer does, to tell whether token files were made with the tokenizer of a run.
//
// It is taken from the pieces of all ids and from the ids of a fixed text in many scripts, so it does not depend on the
// files that the tokenizer came in (vocab.json and merges.txt, or the tokenizer.json made of them), while another
// order of merges or another way to cut text into words shows. Equal numbers mean the same tokenizer for all practical
// purposes, not for certain. The text never changes: the numbers stand in files.
#pragma once

#include <cstdint>

#include "text/tokenizer.h"

namespace espalier::text {

// Some hundredths of a second for 250,000 ids.
uint64_t fingerprint(const Tokenizer& tokenizer);

}  // namespace espalier::text
