// Clusters of documents that are joined in pairs, directly or through others: the lowest number of each stays.
//
// Connected components by sorting alone, with alternating large-star and small-star steps (Kiveris et al., Connected
// components in MapReduce and beyond, SoCC 2014): each round sorts all pairs three times, and O(log^2 n) rounds are
// enough (a handful in practice). Memory: two sorters' buffers, whatever the number of documents. The result is a
// function of the set of pairs.
#pragma once

#include <nlohmann/json.hpp>

#include "curate/dedup/document_nodes.h"
#include "curate/dedup/record_sorter.h"
#include "curate/dedup/sorted_records.h"
#include "curate/step.h"

namespace espalier::curate {

class Clusters {
 public:
  // Of the memory of `space`, up to `memory_bytes`.
  Clusters(const std::filesystem::path& folder, int64_t memory_bytes);

  void join(uint64_t a, uint64_t b);
  void finish();

  // After finish(): the node that stays in place of this one; nothing if this one stays.
  std::optional<uint64_t> kept_for(uint64_t node) const;
  // Dropped where all nodes of the document are: "duplicate", with the number of the document that stays.
  Fate decide(const DocumentNodes& nodes, const Document& document) const;
  // Pairs, clusters, documents that go, the largest clusters.
  nlohmann::ordered_json facts() const;

 private:
  struct Pair {
    uint64_t a, b;
    bool operator<(const Pair& other) const { return a != other.a ? a < other.a : b < other.b; }
    bool operator==(const Pair&) const = default;
  };
  using Sorter = RecordSorter<Pair>;
  struct Star {
    uint64_t node, root;
  };

  std::unique_ptr<Sorter> make_sorter();
  uint64_t write_pairs(Sorter& pairs);
  void count_clusters();

  std::filesystem::path folder_;
  int64_t memory_bytes_, num_pairs_ = 0, num_rounds_ = 0, num_sorters_ = 0;
  std::unique_ptr<Sorter> pairs_;
  SortedRecords<Star> stars_;
  nlohmann::ordered_json facts_;
};

}  // namespace espalier::curate
