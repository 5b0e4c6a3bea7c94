// The chunks of the database nearest to each chunk of each sample of a set, found once, before training.
//
//   NeighborSource queries ...
//   find_neighbors(plan, chunks, index, samples, queries);
//   const NeighborFile neighbors("work/neighbors/train");
//   neighbors.row(sample, chunk);     // ids of chunks, the nearest first; -1 for those that do not exist
//
// Sample n of a set has a row for each of its chunks. No neighbour comes from a document that the sample holds tokens
// of. The folder of a set:
//
//   neighbors.json               numbers: samples, chunks per sample, neighbours per chunk, samples per block; and
//   which
//                                chunks, index and order of samples they belong to
//   block-00000.safetensors      neighbors I64 [samples, chunks, neighbours]
//   building.json                while it is not complete: the same description
//
// A block appears when it is whole, so that a search that was killed resumes at the first missing block. What
// is found depends neither on threads nor on blocks (search.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/gpt_dataset.h"
#include "retrieval/chunk_database.h"
#include "retrieval/search.h"

namespace espalier::retrieval {

struct NeighborPlan {
  std::filesystem::path folder;    // of the set
  int64_t num_saved = 20;          // neighbours of each chunk
  int64_t num_asked = 200;         // at first; more where too few remain without the sample's own documents
  int64_t block_chunks = 100'000;  // chunks of samples in a file
  int64_t memory_bytes = 1LL << 30;
  int threads = 1;
  bool overwrite = false;
  std::shared_ptr<const TrainedIndex> trained = nullptr;  // of the index; null: the search is exact
};

// Vectors of the chunks of one sample after another: `count` samples from `first` on, [count * chunks, dimension].
struct QuerySource {
  std::string name;  // equal for two that give the same vectors
  std::function<void(int64_t first, int64_t count, float* rows)> read;
};

struct NeighborSummary {
  int64_t samples = 0, blocks = 0, blocks_kept = 0;
  int64_t missing = 0;  // of blocks made by this call: places for which no chunk was found
};

// Samples [0, samples.size()), each of a whole number of chunks. UserErrors: neighbours of something else that are
// there.
NeighborSummary find_neighbors(const NeighborPlan& plan, const ChunkDatabase& chunks, const IndexFacts& index,
                               const data::GptDataset& samples, const QuerySource& queries);

// Immutable; any number of threads may read.
class NeighborFile {
 public:
  // UserErrors: there are none, or they are not complete.
  explicit NeighborFile(const std::filesystem::path& folder);

  int64_t num_samples() const { return num_samples_; }
  int64_t chunks_of_sample() const { return chunks_of_sample_; }
  int64_t num_saved() const { return num_saved_; }
  uint64_t checksum() const { return checksum_; }        // of what the neighbours were found by
  const std::string& order() const { return order_; }    // data::to_text() of the samples' fingerprint
  const std::string& chunks() const { return chunks_; }  // checksum of the database, as hex64()
  std::span<const int64_t> row(int64_t sample, int64_t chunk) const;

 private:
  int64_t num_samples_ = 0, chunks_of_sample_ = 0, num_saved_ = 0, block_samples_ = 0;
  uint64_t checksum_ = 0;
  std::string order_, chunks_;
  std::vector<std::unique_ptr<store::SafetensorsFile>> files_;
  std::vector<std::span<const int64_t>> blocks_;
};

// Of a set of a run, below the folder of `espalier retro build`.
std::filesystem::path neighbor_folder(const std::filesystem::path& workdir, const std::string& kind,
                                      const std::string& set_name);

}  // namespace espalier::retrieval
