#include "retrieval/search.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/progress.h"
#include "retrieval/internal/inner_product.h"
#include "retrieval/search_plugin.h"
#include "retrieval/trained_index.h"

namespace espalier::retrieval {
namespace {

using internal::better;
using internal::inner_product;

constexpr int64_t kQueriesAtOnce = 1024;
constexpr int64_t kSpareCandidates = 16;  // enough where scores are not crowded
constexpr double kGreatestSafe = 1e37;    // of products of lengths: below it no sum in fp32 overflows

double length_of(const float* row, int64_t dimension) { return std::sqrt(inner_product(row, row, dimension)); }

// Consecutive rows of a shard.
struct Block {
  const float* rows = nullptr;
  const int64_t* ids = nullptr;
  int64_t count = 0;
  double longest = 0;  // of the rows' lengths
};

// How far an inner product summed in fp32, in any order, may be from the exact one: d u / (1 - d u) times the lengths
// (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), doubled for the rounding of this bound itself;
// and what products too small for fp32 lose.
double rounding_bound(int64_t dimension, double query_length, double row_length) {
  const double units = static_cast<double>(dimension + 1) * 0x1p-24;
  return 2 * units / (1 - units) * query_length * row_length + static_cast<double>(dimension) * 0x1p-126;
}

class Search {
 public:
  Search(const IndexFacts& index, const float* queries, int64_t num_queries, const SearchPlan& plan)
      : index_(index),
        queries_(queries),
        num_queries_(num_queries),
        plan_(plan),
        count_(std::min(plan.count, index.rows)),
        table_(load_search_plugin()),
        hits_(static_cast<size_t>(num_queries)) {}

  std::vector<std::vector<Hit>> run() {
    if (!plan_.on_progress)
      progress_ = std::make_unique<Progress>("index search", index_.rows, Progress::Unit::kItems, "rows");
    const int64_t row_bytes = index_.dimension * static_cast<int64_t>(sizeof(float));
    const int64_t block_rows = std::max<int64_t>(1, plan_.memory_bytes / 2 / row_bytes);
    for (const Shard& shard : index_.shards) {
      const ShardFile file(shard, index_.dimension);
      Hasher hasher;
      hasher.update(file.ids(), static_cast<size_t>(shard.rows) * sizeof(int64_t));
      for (int64_t first = 0; first < shard.rows; first += block_rows) {
        Block block{.rows = file.rows() + first * index_.dimension,
                    .ids = file.ids() + first,
                    .count = std::min(block_rows, shard.rows - first)};
        hasher.update(block.rows, static_cast<size_t>(block.count * row_bytes));
        search_block(block);
        release(block.rows, static_cast<size_t>(block.count * row_bytes));
        rows_done_ += block.count;
        report(0, 1);
      }
      check_checksum(shard, hasher.digest());
    }
    if (progress_) progress_->finish();
    return std::move(hits_);
  }

 private:
  // Of a block of so many rows, this share of the queries is through.
  void report(int64_t block_rows, double share) {
    const double rows = static_cast<double>(rows_done_) + share * static_cast<double>(block_rows);
    if (plan_.on_progress) return plan_.on_progress(rows / static_cast<double>(index_.rows));
    progress_->advance(static_cast<int64_t>(rows) - rows_shown_);
    rows_shown_ = static_cast<int64_t>(rows);
  }

  void search_block(Block& block) {
    for (int64_t row = 0; row < block.count; ++row)
      block.longest = std::max(block.longest, length_of(block.rows + row * index_.dimension, index_.dimension));
    // Scores and numbers of the candidates are the other half of the memory.
    const int64_t candidates = std::min(block.count, count_ + kSpareCandidates);
    const int64_t fitting = plan_.memory_bytes / 2 / (candidates * 12);
    const int64_t at_once = std::clamp<int64_t>(fitting, 1, kQueriesAtOnce);
    std::vector<int64_t> numbers;
    for (int64_t first = 0; first < num_queries_; first += at_once) {
      numbers.resize(static_cast<size_t>(std::min(at_once, num_queries_ - first)));
      std::iota(numbers.begin(), numbers.end(), first);
      search_queries(block, numbers, candidates);
      const int64_t through = first + static_cast<int64_t>(numbers.size());
      report(block.count, static_cast<double>(through) / static_cast<double>(num_queries_));
    }
  }

  // Asks for ever more candidates for those queries that may still lack a better row.
  void search_queries(const Block& block, std::vector<int64_t> numbers, int64_t candidates) {
    while (!numbers.empty()) {
      std::vector<int64_t> open;
      for (size_t first = 0; first < numbers.size();) {
        const auto fitting = static_cast<size_t>(std::max<int64_t>(1, plan_.memory_bytes / 2 / (candidates * 12)));
        const size_t last = std::min(numbers.size(), first + fitting);
        propose(block, {numbers.begin() + static_cast<int64_t>(first), numbers.begin() + static_cast<int64_t>(last)},
                candidates, open);
        first = last;
      }
      numbers = std::move(open);
      candidates = std::min(block.count, candidates * 4);
    }
  }

  void propose(const Block& block, const std::vector<int64_t>& numbers, int64_t candidates,
               std::vector<int64_t>& open) {
    const int64_t dimension = index_.dimension;
    std::vector<float> queries(numbers.size() * static_cast<size_t>(dimension));
    for (size_t at = 0; at < numbers.size(); ++at)
      std::copy_n(queries_ + numbers[at] * dimension, dimension, queries.data() + static_cast<int64_t>(at) * dimension);
    scores_.resize(numbers.size() * static_cast<size_t>(candidates));
    rows_.resize(scores_.size());
    const Neighbours work{.queries = queries.data(),
                          .num_queries = static_cast<int64_t>(numbers.size()),
                          .rows = block.rows,
                          .num_rows = block.count,
                          .dimension = dimension,
                          .count = candidates,
                          .threads = plan_.threads,
                          .scores = scores_.data(),
                          .numbers = rows_.data()};
    char error[512] = "";
    if (!table_.find_neighbours(work, error, sizeof error)) throw UserError(concat("the search failed: ", error));
    for (size_t at = 0; at < numbers.size(); ++at)
      if (!take(block, numbers[at], static_cast<int64_t>(at) * candidates, candidates)) open.push_back(numbers[at]);
  }

  // Of one query, candidates [begin, begin + count) of scores_ and rows_. False, with nothing taken, where a row that
  // is not among them may belong to the answer.
  bool take(const Block& block, int64_t number, int64_t begin, int64_t count) {
    const float* const query = queries_ + number * index_.dimension;
    const double query_length = length_of(query, index_.dimension);
    if (query_length * block.longest > kGreatestSafe) return take_all(block, number);
    std::vector<Hit>& hits = hits_[static_cast<size_t>(number)];
    std::vector<Hit> merged = hits;
    for (int64_t at = begin; at < begin + count; ++at) {
      const int64_t row = rows_[static_cast<size_t>(at)];
      ESPALIER_CHECK(row >= 0 && row < block.count, row);
      merged.push_back({block.ids[row], inner_product(query, block.rows + row * index_.dimension, index_.dimension)});
    }
    std::sort(merged.begin(), merged.end(), better);
    if (static_cast<int64_t>(merged.size()) > count_) merged.resize(static_cast<size_t>(count_));
    if (count < block.count) {
      const double bound = rounding_bound(index_.dimension, query_length, block.longest);
      const double best_missing = static_cast<double>(scores_[static_cast<size_t>(begin + count - 1)]) + bound;
      if (static_cast<int64_t>(merged.size()) < count_ || !(best_missing < merged.back().score)) return false;
    }
    hits.assign(merged.begin(), merged.end());  // keeps no room that it does not need
    return true;
  }

  // Without Faiss, for inner products beyond the range of fp32.
  bool take_all(const Block& block, int64_t number) {
    std::vector<Hit>& hits = hits_[static_cast<size_t>(number)];
    for (int64_t row = 0; row < block.count; ++row)
      hits.push_back({block.ids[row], inner_product(queries_ + number * index_.dimension,
                                                    block.rows + row * index_.dimension, index_.dimension)});
    std::sort(hits.begin(), hits.end(), better);
    if (static_cast<int64_t>(hits.size()) > count_) hits.resize(static_cast<size_t>(count_));
    return true;
  }

  // Pages of the mapping that are not read again: the process keeps no more of the index than a block.
  static void release(const float* rows, size_t bytes) {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(rows) / page * page;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(rows) + bytes) / page * page;
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }

  const IndexFacts& index_;
  const float* queries_;
  int64_t num_queries_;
  SearchPlan plan_;
  int64_t count_;
  const SearchTable& table_;
  std::vector<std::vector<Hit>> hits_;
  std::vector<float> scores_;
  std::vector<int64_t> rows_;
  std::unique_ptr<Progress> progress_;  // of this search; none where its caller shows it
  int64_t rows_done_ = 0, rows_shown_ = 0;
};

}  // namespace

std::vector<std::vector<Hit>> search(const IndexFacts& index, const float* queries, int64_t num_queries,
                                     const SearchPlan& plan) {
  if (plan.trained != nullptr) return plan.trained->find(queries, num_queries, plan);
  return Search(index, queries, num_queries, plan).run();
}

}  // namespace espalier::retrieval
