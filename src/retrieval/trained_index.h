// An approximate search by one of Faiss's index strings, as Retro uses them, beside the shards of an index.
//
//   train_index({.folder = "wiki-index", .index_string = "IVF4096_HNSW4,Flat"});
//   const IndexFacts index = read_index("wiki-index");
//   search(index, queries, n, {.count = 10, .trained = open_trained_index(index, {.nprobe = 64})});
//
// Faiss names candidates; their inner products are computed from the rows in the shards, so that scores and order are
// those of the exact search, and only which rows are missing depends on the string.
//
//   trained.json             {"format": 1, "index_string", "training_rows", "faiss", "rows", "dimension", "shards",
//                            "nprobe", "ef_search", "xxh3"}
//   trained.faiss            as faiss::read_index() opens it; its rows are numbered in the order of the shards
//   training.json            while it is not complete: the same description
//   trained-empty.faiss,     while it is not complete: what training gave, and the codes of 262,144 rows each
//   codes-00000.safetensors
//
// Each file appears when it is whole, so that a build that was killed resumes behind the last. On one machine the bytes
// depend neither on the number of threads nor on interruptions or the sizes of shards; on another its BLAS may round
// otherwise.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "retrieval/index_folder.h"
#include "retrieval/search.h"
#include "retrieval/search_table.h"

namespace espalier::retrieval {

namespace internal {
class ShardRows;
}

inline constexpr int64_t kUsualNprobe = 65536, kUsualEfSearch = 256;  // upstream's

struct TrainingPlan {
  std::filesystem::path folder;  // of a complete index
  std::string index_string;
  // Drawn among all rows by a fixed seed; 0: as many as Faiss takes, 256 for each centroid, or all.
  int64_t training_rows = 0;
  int64_t nprobe = kUsualNprobe, ef_search = kUsualEfSearch;  // kept for who searches without saying
  int threads = 1;
  bool overwrite = false;  // replace one of another string, complete or not
};

// What is wrong with a string, and what works; empty if nothing. Before there are rows, `num_rows` is none; the other
// checks need no more than the plugin.
std::string index_string_problem(const std::string& index_string, int64_t dimension, std::optional<int64_t> num_rows,
                                 int64_t training_rows);

// The same of what will be indexed, before it is: a UserError (kUsage) that begins with `option`.
void check_index_string(const TrainingPlan& plan, const EmbeddingSource& source, const std::string& option);

// "Flat" and "exact", as which the shards are searched anyway.
bool is_exact(const std::string& index_string);

struct TrainingSummary {
  int64_t training_rows = 0;
  int64_t code_bytes = 0;  // of a row
  int64_t file_bytes = 0;
  bool kept = false;  // it was there
};

// UserErrors: no index; a string that does not fit it; a trained index of another string, number of training rows or
// other shards that is there. One that is there and the same stays.
TrainingSummary train_index(const TrainingPlan& plan);

// Removes what train_index() has made there, complete or not.
void remove_trained_index(const std::filesystem::path& folder);

struct ProbePlan {
  std::optional<int64_t> nprobe, ef_search;  // none: what the index was built with
};

// Immutable; any number of threads may search.
class TrainedIndex {
 public:
  // UserErrors: none there, one that is not complete, of other shards, or damaged.
  TrainedIndex(const IndexFacts& index, const ProbePlan& probes);
  ~TrainedIndex();
  TrainedIndex(const TrainedIndex&) = delete;
  TrainedIndex& operator=(const TrainedIndex&) = delete;

  const std::string& index_string() const { return index_string_; }
  // Equal for two that find the same: "IVF64,Flat of 4096 rows, nprobe 8".
  const std::string& name() const { return name_; }
  // Called by search().
  std::vector<std::vector<Hit>> find(const float* queries, int64_t num_queries, const SearchPlan& plan) const;

 private:
  struct Close {
    const SearchTable* table;
    void operator()(FaissIndex* index) const { table->close(index); }
  };
  std::vector<Hit> rank(const float* query, const int64_t* numbers, int64_t count, int64_t wanted) const;

  int64_t rows_ = 0, dimension_ = 0;
  std::unique_ptr<const internal::ShardRows> shards_;
  std::string index_string_, name_;
  IndexShape shape_;
  std::unique_ptr<FaissIndex, Close> index_;
};

// The index string of the one that is there, complete or not.
std::optional<std::string> trained_index_string(const std::filesystem::path& folder);

// Null if the index has none.
std::shared_ptr<const TrainedIndex> open_trained_index(const IndexFacts& index, const ProbePlan& probes = {});

// So many rows of the index, spread evenly over it.
std::vector<float> some_rows(const IndexFacts& index, int64_t count);

// For each query the share of its `count` exact hits that the plan's trained index finds too, averaged. `found`: what
// it has found, where that is known already.
double measure_recall(const IndexFacts& index, const float* queries, int64_t num_queries, const SearchPlan& plan,
                      const std::vector<std::vector<Hit>>* found = nullptr);

}  // namespace espalier::retrieval
