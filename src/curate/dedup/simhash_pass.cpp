// Near-duplicates by SimHash. Memory: two sorters' buffers, and 16 bytes for each hash that shares a key.
#include <bit>
#include <cstring>

#include "curate/dedup/clusters.h"
#include "curate/dedup/dedup.h"
#include "curate/dedup/pass_facts.h"
#include "curate/dedup/simhash.h"

namespace espalier::curate {
namespace {

struct SimHashConfig {
  int64_t window = 6, distance = 4, blocks = 6;
};

// A hash under one of the choices of blocks (0: the hash itself).
struct SimHashEntry {
  uint64_t choice, key, hash, node;
  bool operator<(const SimHashEntry& other) const {
    if (choice != other.choice) return choice < other.choice;
    if (key != other.key) return key < other.key;
    return hash != other.hash ? hash < other.hash : node < other.node;
  }
};

class SimHashPart : public PassPart {
 public:
  SimHashPart(const SimHashConfig& config, const PassSpace& space)
      : config_(config),
        folder_(space.folder),
        clusters_(space.folder, space.memory_bytes / 2),
        hashes_(space.folder, "hashes", space.memory_bytes / 4),
        keys_(space.folder, "keys", space.memory_bytes / 4) {}

  void add(int64_t number, std::string_view digest) override {
    if (digest.empty()) {
      ++num_without_words_;
      return;
    }
    SimHashEntry entry{0, 0, 0, static_cast<uint64_t>(number)};
    std::memcpy(&entry.hash, digest.data(), sizeof entry.hash);
    hashes_.add(entry);
  }
  void finish() override {
    join_equal();
    join_near();
    nlohmann::ordered_json facts = clusters_.finish();
    facts["without_words"] = num_without_words_;
    facts["distance"] = config_.distance;
    write_facts(folder_, facts);
  }

 private:
  // Equal hashes are joined to their first, which alone goes on.
  void join_equal() {
    const std::vector<uint64_t> masks = key_masks(config_.blocks, config_.distance);
    std::optional<SimHashEntry> first;
    hashes_.drain([&](const SimHashEntry& entry) {
      if (first && first->hash == entry.hash) {
        clusters_.join(first->node, entry.node);
        return;
      }
      first = entry;
      for (size_t choice = 0; choice < masks.size(); ++choice)
        keys_.add({choice, entry.hash & masks[choice], entry.hash, entry.node});
    });
  }
  void join_near() {
    std::vector<SimHashEntry> same;
    keys_.drain([&](const SimHashEntry& entry) {
      if (!same.empty() && (same.front().choice != entry.choice || same.front().key != entry.key)) same.clear();
      for (const SimHashEntry& other : same)
        if (std::popcount(other.hash ^ entry.hash) <= config_.distance) clusters_.join(other.node, entry.node);
      same.push_back(entry);
    });
  }

  const SimHashConfig& config_;
  std::filesystem::path folder_;
  Clusters clusters_;
  RecordSorter<SimHashEntry> hashes_, keys_;
  int64_t num_without_words_ = 0;
};

class SimHashPass : public Pass {
 public:
  explicit SimHashPass(const SimHashConfig& config) : config_(config) {}

  void digest(const Document& document, Digests& digests) const override {
    const std::optional<uint64_t> hash = simhash(document.text, config_.window);
    digests.add(0, document.number,
                hash ? std::string_view(reinterpret_cast<const char*>(&*hash), sizeof *hash) : std::string_view());
  }
  std::unique_ptr<PassPart> make_part(int64_t, const PassSpace& space) const override {
    return std::make_unique<SimHashPart>(config_, space);
  }
  void open(const std::filesystem::path& folder) override {
    members_ = ClusterMembers(folder);
    facts_ = read_facts(folder);
  }
  Fate decide(Document& document) const override { return members_.decide(document); }
  nlohmann::ordered_json facts() const override { return facts_; }

 private:
  SimHashConfig config_;
  ClusterMembers members_;
  nlohmann::ordered_json facts_;
};

class SimHashMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add("--window", config_.window, "words of a window").minimum(1).maximum(1000);
    table.add("--distance", config_.distance, "bits of 64 that may differ").minimum(0).maximum(15);
    table
        .add("--blocks", config_.blocks,
             "blocks of bits by which near hashes are searched: more find them with fewer comparisons, and sort more")
        .minimum(1)
        .maximum(16);
  }
  void check(Problems& problems) override {
    if (config_.distance >= config_.blocks)
      problems.add("--distance ", config_.distance, " is not less than --blocks ", config_.blocks);
  }
  std::unique_ptr<Pass> make_pass() const override { return std::make_unique<SimHashPass>(config_); }

 private:
  SimHashConfig config_;
};

}  // namespace

std::unique_ptr<StepMaker> simhash_maker() { return std::make_unique<SimHashMaker>(); }

}  // namespace espalier::curate
