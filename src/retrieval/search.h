// The rows of an index with the greatest inner products: exact, by Faiss, block after block of mapped shards; or among
// the candidates of a trained index (trained_index.h).
//
// The exact answer is defined without regard to how it is computed: the inner product is the sum in double precision of
// the products in the order of the numbers, and of equal ones the lowest id comes first. So it is the same for any
// number of shards and threads, any memory and any BLAS. Faiss, whose sums are fp32 in an order of its own, proposes
// candidates: as many as its rounding, which is bounded, may have put in the wrong place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "retrieval/index_folder.h"

namespace espalier::retrieval {

class TrainedIndex;

struct SearchPlan {
  int64_t count = 100;               // of rows wanted for each query; fewer where the index has fewer
  int64_t memory_bytes = 1LL << 30;  // of rows held at once, and of what Faiss returns for them
  int threads = 1;
  std::shared_ptr<const TrainedIndex> trained = nullptr;  // of the same rows; null: exact
  // Told what share is done, up to 1, instead of a progress line of the search itself.
  std::function<void(double share)> on_progress = nullptr;
};

struct Hit {
  int64_t id = 0;
  double score = 0;
};

// For each query (fp32, [num_queries, dimension of the index], finite) its hits, the best first. Every shard's checksum
// is compared on the way of an exact search: a UserError (kBadData) names the shard that has changed since it was
// built.
std::vector<std::vector<Hit>> search(const IndexFacts& index, const float* queries, int64_t num_queries,
                                     const SearchPlan& plan);

}  // namespace espalier::retrieval
