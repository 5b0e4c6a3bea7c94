// Clusters of documents that are joined in pairs, directly or through others: the lowest number of each stays.
//
// Connected components by sorting alone, with alternating large-star and small-star steps (Kiveris et al., Connected
// components in MapReduce and beyond, SoCC 2014): each round sorts all pairs three times, and O(log^2 n) rounds are
// enough (a handful in practice). Memory: two sorters' buffers, whatever the number of documents. The result is a
// function of the set of pairs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "curate/dedup/record_sorter.h"
#include "curate/dedup/sorted_records.h"
#include "curate/step.h"

namespace espalier::curate {

// A document that goes, and the one that stays in its place.
struct ClusterMember {
  uint64_t node, root;
};

class Clusters {
 public:
  // `memory_bytes`: for each of the two sorters half of it.
  Clusters(const std::filesystem::path& folder, int64_t memory_bytes);

  void join(uint64_t a, uint64_t b);
  // Leaves the members in the folder, and returns the facts: pairs, clusters, documents that go, the largest clusters.
  nlohmann::ordered_json finish();

 private:
  struct Pair {
    uint64_t a, b;
    bool operator<(const Pair& other) const { return a != other.a ? a < other.a : b < other.b; }
    bool operator==(const Pair&) const = default;
  };
  using Sorter = RecordSorter<Pair>;

  std::unique_ptr<Sorter> make_sorter();
  std::filesystem::path members_file() const;
  template <class Take>
  void for_each_member(Take take) const;
  uint64_t write_pairs(Sorter& pairs);
  nlohmann::ordered_json count_clusters();

  std::filesystem::path folder_;
  int64_t memory_bytes_, num_pairs_ = 0, num_sorters_ = 0, num_members_ = 0;
  std::unique_ptr<Sorter> pairs_;
};

// What Clusters left in a folder. Any thread.
class ClusterMembers {
 public:
  ClusterMembers() = default;
  explicit ClusterMembers(const std::filesystem::path& folder);

  // The document that stays in place of this one; nothing if this one stays.
  std::optional<uint64_t> kept_for(uint64_t node) const;
  // Dropped as "duplicate", with the number of the document that stays.
  Fate decide(const Document& document) const;

 private:
  SortedRecords<ClusterMember> members_;
};

}  // namespace espalier::curate
