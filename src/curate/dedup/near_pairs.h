// Documents that share a bucket, compared shingle by shingle as OpenWebText's pipeline does.
//
// In each bucket the document with the lowest number is compared with all others; those that are alike leave the
// bucket, then the next lowest is taken, until one document is left or `most_iterations` are over (-1: no end). The
// original draws the document at random; this is one of its possible results. A bucket of n documents that are not
// alike costs O(n^2) comparisons.
//
// Memory: the buffer of a cache of sets of shingles, and 8 bytes for each document of the largest bucket. On disk: the
// texts.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>

#include "curate/dedup/jaccard.h"
#include "curate/dedup/record_sorter.h"
#include "curate/dedup/sorted_records.h"

namespace espalier::curate {

class NearPairs {
 public:
  using MakeSet = ShingleSet (*)(std::string_view text, int64_t parameter);
  struct Setting {
    MakeSet make_set = nullptr;
    int64_t parameter = 0;  // of make_set
    JaccardDivisor divisor = JaccardDivisor::kUnion;
    double alike_above = 0.5;      // leaves the bucket
    double joined_from = 0.7;      // counts as a duplicate
    int64_t most_iterations = -1;  // for each bucket
    int64_t memory_bytes = 0;
  };
  NearPairs(const std::filesystem::path& folder, const Setting& setting);
  ~NearPairs();  // removes its files
  NearPairs(NearPairs&&) = delete;

  void add(uint64_t node, std::string_view text);  // in the order of the nodes
  void finish_texts();
  // Calls join(a, b) for each pair that counts. The members are in order.
  template <class Join>
  void compare(std::vector<uint64_t> bucket, Join join) {
    for (int64_t iteration = 0; bucket.size() > 1; ++iteration) {
      if (iteration == setting_.most_iterations) return;
      const std::shared_ptr<const ShingleSet> first = set_of(bucket.front());
      std::vector<uint64_t> left;
      for (size_t other = 1; other < bucket.size(); ++other) {
        const double similarity = jaccard(*first, *set_of(bucket[other]), setting_.divisor);
        ++num_compared_;
        if (similarity > setting_.alike_above) {
          ++num_alike_;
          if (similarity >= setting_.joined_from) join(bucket.front(), bucket[other]);
        } else {
          left.push_back(bucket[other]);
        }
      }
      bucket = std::move(left);
    }
  }
  int64_t num_compared() const { return num_compared_; }
  int64_t num_alike() const { return num_alike_; }

 private:
  struct Place {
    uint64_t node;
    int64_t offset, size;
  };
  std::shared_ptr<const ShingleSet> set_of(uint64_t node);

  std::filesystem::path folder_;
  Setting setting_;
  std::optional<OutputFile> texts_;
  std::string pending_;
  int64_t offset_ = 0;
  std::optional<RecordWriter<Place>> writer_;
  std::optional<InputFile> input_;
  SortedRecords<Place> places_;
  std::unordered_map<uint64_t, std::shared_ptr<const ShingleSet>> cache_;
  int64_t cached_bytes_ = 0, num_compared_ = 0, num_alike_ = 0;
};

}  // namespace espalier::curate
