#include "curate/dedup/clusters.h"

#include "base/hash.h"

namespace espalier::curate {

Clusters::Clusters(const std::filesystem::path& folder, int64_t memory_bytes)
    : folder_(folder), memory_bytes_(memory_bytes), pairs_(make_sorter()) {}

std::unique_ptr<Clusters::Sorter> Clusters::make_sorter() {
  return std::make_unique<Sorter>(folder_, concat("pairs-", num_sorters_++), memory_bytes_ / 2);
}

void Clusters::join(uint64_t a, uint64_t b) {
  if (a == b) return;
  pairs_->add({std::max(a, b), std::min(a, b)});
  ++num_pairs_;
}

// Each pair once, into the file; the hash of all.
uint64_t Clusters::write_pairs(Sorter& pairs) {
  RecordWriter<Star> writer(folder_ / "stars");
  Hasher hasher;
  std::optional<Pair> last;
  pairs.drain([&](const Pair& pair) {
    if (last && *last == pair) return;
    last = pair;
    writer.add({pair.a, pair.b});
    hasher.update(&pair, sizeof pair);
  });
  writer.close();
  return hasher.digest();
}

// Pairs are (larger, smaller). Done when a round changes none: then each node hangs on the least of its component.
void Clusters::finish() {
  uint64_t hash = write_pairs(*pairs_);
  for (;;) {
    ++num_rounds_;
    pairs_ = make_sorter();
    {
      RecordRun<Star> run(folder_ / "stars", 16384);
      for (Star pair; run.next(pair);) {
        pairs_->add({pair.node, pair.root});
        pairs_->add({pair.root, pair.node});
      }
    }
    // Large star: of each node, the larger neighbours come to its least neighbour (or to itself, if that is less).
    std::unique_ptr<Sorter> next = make_sorter();
    uint64_t node = ~uint64_t{0}, least = 0;
    pairs_->drain([&](const Pair& pair) {
      if (pair.a != node) node = pair.a, least = std::min(pair.a, pair.b);
      if (pair.b > node) next->add({pair.b, least});
    });
    // Small star: of each node, the smaller neighbours and itself come to the least of them.
    pairs_ = std::move(next);
    next = make_sorter();
    node = ~uint64_t{0};
    pairs_->drain([&](const Pair& pair) {
      if (pair.a != node) {
        node = pair.a;
        least = pair.b;
        next->add(pair);
      } else if (pair.b != least) {
        next->add({pair.b, least});
      }
    });
    pairs_ = std::move(next);
    const uint64_t before = hash;
    hash = write_pairs(*pairs_);
    if (hash == before) break;
  }
  pairs_.reset();
  stars_ = SortedRecords<Star>(folder_ / "stars");
  count_clusters();
}

void Clusters::count_clusters() {
  Sorter by_root(folder_, "roots", memory_bytes_ / 2);
  for (const Star& star : stars_.all()) by_root.add({star.root, star.node});
  struct Cluster {
    int64_t size;
    uint64_t root;
    bool operator<(const Cluster& other) const { return size != other.size ? size > other.size : root < other.root; }
  };
  constexpr size_t kShown = 10;
  std::vector<Cluster> largest;
  int64_t num_clusters = 0;
  Cluster current{0, 0};
  const auto finish_cluster = [&] {
    if (current.size == 0) return;
    ++num_clusters;
    largest.push_back(current);
    std::sort(largest.begin(), largest.end());
    if (largest.size() > kShown) largest.pop_back();
  };
  by_root.drain([&](const Pair& pair) {
    if (current.size == 0 || current.root != pair.a) {
      finish_cluster();
      current = {1, pair.a};
    }
    ++current.size;
  });
  finish_cluster();
  facts_ = {{"pairs", num_pairs_},
            {"clusters", num_clusters},
            {"duplicates", static_cast<int64_t>(stars_.all().size())},
            {"largest", nlohmann::ordered_json::array()}};
  for (const Cluster& cluster : largest)
    facts_["largest"].push_back({{"kept", DocumentNodes::number_of(cluster.root)}, {"documents", cluster.size}});
}

std::optional<uint64_t> Clusters::kept_for(uint64_t node) const {
  const std::span<const Star> found = stars_.of(node);
  return found.empty() ? std::nullopt : std::optional(found.front().root);
}

Fate Clusters::decide(const DocumentNodes& nodes, const Document& document) const {
  std::optional<uint64_t> kept;
  for (const uint64_t node : nodes.find(document)) {
    kept = kept_for(node);
    if (!kept) return Fate::kept();
  }
  return kept ? Fate::dropped("duplicate", {}, static_cast<double>(DocumentNodes::number_of(*kept))) : Fate::kept();
}

nlohmann::ordered_json Clusters::facts() const { return facts_; }

}  // namespace espalier::curate
