// Rows of ids with their neighbours to a Batch: a GPT's, and the neighbours in Batch::extra.
#pragma once

#include <vector>

#include "data/decoder_masks.h"
#include "models/data.h"
#include "tensor/batch.h"

namespace espalier::models {

// Names in Batch::extra.
inline constexpr const char* kNeighborTokens = "neighbor_tokens";  // [b, chunks, neighbours, retrieved length] int64
inline constexpr const char* kNeighborCounts = "neighbor_counts";  // [b, chunks] int64: of those that there are

// Of samples as retrieval::RetroDataset gives them, for that many neighbours of each chunk.
tensor::Batch make_retro_batch(const std::vector<SampleRow>& rows, const data::RowRules& rules, int64_t num_neighbors);

}  // namespace espalier::models
