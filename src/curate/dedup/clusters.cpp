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

std::filesystem::path Clusters::members_file() const { return folder_ / "members"; }

// Not mapped: all of it would be in memory.
template <class Take>
void Clusters::for_each_member(Take take) const {
  RecordRun<ClusterMember> run(members_file(), kBufferedRecords);
  for (ClusterMember member; run.next(member);) take(member);
}

// Each pair once, into the file; the hash of all.
uint64_t Clusters::write_pairs(Sorter& pairs) {
  RecordWriter<ClusterMember> writer(members_file());
  Hasher hasher;
  std::optional<Pair> last;
  num_members_ = 0;
  pairs.drain([&](const Pair& pair) {
    if (last && *last == pair) return;
    last = pair;
    writer.add({pair.a, pair.b});
    ++num_members_;
    hasher.update(&pair, sizeof pair);
  });
  writer.close();
  return hasher.digest();
}

// Pairs are (larger, smaller). Done when a round changes none: then each node hangs on the least of its component.
nlohmann::ordered_json Clusters::finish() {
  uint64_t hash = write_pairs(*pairs_);
  for (;;) {
    pairs_ = make_sorter();
    for_each_member([&](const ClusterMember& pair) {
      pairs_->add({pair.node, pair.root});
      pairs_->add({pair.root, pair.node});
    });
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
  return count_clusters();
}

nlohmann::ordered_json Clusters::count_clusters() {
  Sorter by_root(folder_, "roots", memory_bytes_ / 2);
  for_each_member([&](const ClusterMember& member) { by_root.add({member.root, member.node}); });
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
  nlohmann::ordered_json facts = {{"pairs", num_pairs_},
                                  {"clusters", num_clusters},
                                  {"duplicates", num_members_},
                                  {"largest", nlohmann::ordered_json::array()}};
  for (const Cluster& cluster : largest)
    facts["largest"].push_back({{"kept", cluster.root}, {"documents", cluster.size}});
  return facts;
}

ClusterMembers::ClusterMembers(const std::filesystem::path& folder) : members_(folder / "members") {}

std::optional<uint64_t> ClusterMembers::kept_for(uint64_t node) const {
  const std::span<const ClusterMember> found = members_.of(node);
  return found.empty() ? std::nullopt : std::optional(found.front().root);
}

Fate ClusterMembers::decide(const Document& document) const {
  const std::optional<uint64_t> kept = kept_for(static_cast<uint64_t>(document.number));
  return kept ? Fate::dropped("duplicate", {}, static_cast<double>(*kept)) : Fate::kept();
}

}  // namespace espalier::curate
