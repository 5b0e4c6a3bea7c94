// One number for what a tokenizer does, to tell whether token files were made with the tokenizer of a run.
//
// It is taken from the pieces of all ids and from the ids of a fixed text in many scripts, so it does not depend on the
// files that the tokenizer came in (vocab.json and merges.txt, or the tokenizer.json made of them), while another
// order of merges or another way to cut text into words shows. Equal numbers mean the same tokenizer for all practical
// purposes, not for certain. The text never changes: the numbers are in files.
#pragma once

#include <cstdint>
#include <optional>

#include "text/tokenizer.h"

namespace espalier::text {

// Some hundredths of a second for 250,000 ids.
uint64_t fingerprint(const Tokenizer& tokenizer);

// Of the tokenizer as it is with `num_ids` ids, where those from there on are <extra_id_0>, <extra_id_1>, ... and no
// others (--vocab-extra-ids adds them after all others); else nothing.
std::optional<uint64_t> fingerprint_without_sentinels(const Tokenizer& tokenizer, int64_t num_ids);

}  // namespace espalier::text
