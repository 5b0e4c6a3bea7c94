// Text by a model that reads neighbours of what it has written (Retro), found while it writes.
#pragma once

#include <memory>

#include "infer/generate.h"
#include "retrieval/chunk_search.h"

namespace espalier::infer {

// Those that `search` finds, in the shape that the model reads.
FindNeighbors neighbors_of(std::shared_ptr<const retrieval::ChunkSearch> search, const models::NeighborShape& shape);

// Continues a prompt (at least one id), with config.find_neighbors asked whenever chunks are finished: for all of the
// prompt at once, then for one after another. The tokens drawn are those of stream `row`. CHECKs that the model is a
// NeighborReader.
Generated read_and_continue(const models::Decoder& model, at::ScalarType compute_type,
                            const std::vector<int32_t>& prompt, const GenerateConfig& config, int64_t row,
                            const TokenCallback& on_token = {});

}  // namespace espalier::infer
