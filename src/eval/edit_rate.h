// The translation edit rate (Snover et al. 2006) of texts, each against one reference, as sacrebleu 2 computes it with
// its own defaults: of words in lower case, with Tercom's heuristics for what is moved where. Fewer edits are better.
//
// A text is turned into its reference by inserting, deleting and replacing words, and by moving runs of them, each one
// edit. Finding the fewest is hard, so runs are moved one after another, each time the one that saves most, while one
// saves any.
#pragma once

#include <string>
#include <vector>

#include "eval/translation_scores.h"

namespace espalier::eval {

// Edits, and words of the reference.
Counts edit_counts(const std::string& text, const std::string& reference);
double edit_rate_of(const Counts& counts);  // in percent

}  // namespace espalier::eval
