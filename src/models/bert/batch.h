// Samples of BERT to a Batch.
#pragma once

#include <vector>

#include "data/sample_source.h"
#include "models/data.h"
#include "tensor/batch.h"

namespace espalier::models {

// Names in Batch::extra, besides those of models/data.h.
inline constexpr const char* kTokenTypes = "types";         // [b, s] int64, 0 where there is padding
inline constexpr const char* kHalvesSwapped = "is_random";  // [b] int64, 0 or 1

// Of rows with the arrays of data::SentenceSampleMaker for BERT, in its order. Where nothing is to be predicted, the
// label is 0 and the loss mask too. Batch::targets: "lm loss", and with a binary head "sop loss".
tensor::Batch make_bert_batch(const std::vector<SampleRow>& rows, bool binary_head);

}  // namespace espalier::models
