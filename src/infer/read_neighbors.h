// Text by a model that reads neighbours of what it has written (Retro), found while it writes; and how likely it finds
// a text of others.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "infer/engine/completion.h"
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

// How likely the last `num_predicted` ids of a text are after those before them. `neighbors`: of each chunk that the
// ids finish without the last, which is not read. CHECKs that the model is a NeighborReader.
LogLikelihood score_with_neighbors(const models::Decoder& model, at::ScalarType compute_type,
                                   std::span<const int32_t> ids, int64_t num_predicted,
                                   const std::vector<models::ChunkNeighbors>& neighbors);

}  // namespace espalier::infer
