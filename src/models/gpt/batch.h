// Rows of ids to a Batch: labels and what data/decoder_masks.h says of them.
#pragma once

#include <vector>

#include "config/run_config.h"
#include "data/decoder_masks.h"
#include "models/data.h"
#include "tensor/batch.h"
#include "text/tokenizer.h"

namespace espalier::models {

// How the rows of a run are masked. Refuses resets and EOD masks when the tokenizer has no end-of-document token.
data::RowRules gpt_row_rules(const config::RunConfig& run, const text::Tokenizer& tokenizer);

// Of rows whose first array are sequence length + 1 ids. With another objective than the causal one the batch has
// kLastKeys, kRowTargets and Batch::targets of "lm loss".
tensor::Batch make_gpt_batch(const std::vector<SampleRow>& rows, const data::RowRules& rules);

}  // namespace espalier::models
