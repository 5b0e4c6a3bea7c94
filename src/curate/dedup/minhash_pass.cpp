// Near-duplicates by MinHash signatures and bands, compared shingle by shingle where that is asked for.
//
// The first bits of a band's hash say in which of 16 parts it is sorted; where texts are compared, there is one part.
#include <cmath>
#include <cstring>

#include "curate/dedup/clusters.h"
#include "curate/dedup/dedup.h"
#include "curate/dedup/minhash.h"
#include "curate/dedup/near_pairs.h"
#include "curate/dedup/pass_facts.h"
#include "text/python_text.h"

namespace espalier::curate {
namespace {

enum class MinHashSetting { kOpenWebText, kWords, kCharacters };

struct MinHashConfig {
  MinHashSetting setting = MinHashSetting::kWords;
  std::optional<int64_t> shingle, bands, rows;
  int64_t seed = 1, heuristic_iter = -1;
  std::optional<double> threshold;
  JaccardDivisor divisor = JaccardDivisor::kUnion;

  bool is_openwebtext() const { return setting == MinHashSetting::kOpenWebText; }
  ShingleUnit unit() const {
    return setting == MinHashSetting::kWords ? ShingleUnit::kWords : ShingleUnit::kCharacters;
  }
  int64_t shingle_size() const { return shingle.value_or(setting == MinHashSetting::kCharacters ? 13 : 5); }
  int64_t num_bands() const { return bands.value_or(is_openwebtext() ? 10 : 14); }
  int64_t num_rows() const { return rows.value_or(is_openwebtext() ? 10 : 8); }
  double least_similarity() const { return threshold.value_or(is_openwebtext() ? 0.7 : 0); }
  bool compares() const { return least_similarity() > 0; }

  NearPairs::Setting pairs(int64_t memory_bytes) const {
    NearPairs::Setting pairs;
    pairs.divisor = divisor;
    pairs.joined_from = least_similarity();
    pairs.most_iterations = heuristic_iter;
    pairs.memory_bytes = memory_bytes;
    pairs.parameter = shingle_size();
    switch (setting) {
      case MinHashSetting::kOpenWebText:
        pairs.make_set = [](std::string_view text, int64_t) { return openwebtext_shingles(text); };
        break;
      case MinHashSetting::kWords:
        pairs.make_set = [](std::string_view text, int64_t size) {
          return to_set(shingle_hashes(text, ShingleUnit::kWords, size));
        };
        break;
      case MinHashSetting::kCharacters:
        pairs.make_set = [](std::string_view text, int64_t size) {
          return to_set(shingle_hashes(text, ShingleUnit::kCharacters, size));
        };
        break;
    }
    if (!is_openwebtext()) pairs.alike_above = std::nextafter(pairs.joined_from, 0.0);  // from the threshold on
    return pairs;
  }
};

struct BandEntry {
  uint64_t bucket, node;
  bool operator<(const BandEntry& other) const {
    return bucket != other.bucket ? bucket < other.bucket : node < other.node;
  }
};

// The members of a bucket, in order: join(least, other) for each other.
template <class Join>
void join_buckets(RecordSorter<BandEntry>& entries, Join join) {
  std::optional<BandEntry> first;
  entries.drain([&](const BandEntry& entry) {
    if (first && first->bucket == entry.bucket)
      join(first->node, entry.node);
    else
      first = entry;
  });
}

struct NodePair {
  uint64_t a, b;
};
constexpr const char* kPairs = "pairs";

// Pairs of candidates from the bands of its part.
class CandidatesPart : public PassPart {
 public:
  explicit CandidatesPart(const PassSpace& space)
      : folder_(space.folder), entries_(space.folder, "bands", space.memory_bytes) {}

  void add(int64_t number, std::string_view digest) override {
    if (digest.empty()) {
      ++num_without_shingles_;
      return;
    }
    BandEntry entry{0, static_cast<uint64_t>(number)};
    std::memcpy(&entry.bucket, digest.data(), sizeof entry.bucket);
    entries_.add(entry);
  }
  void finish() override {
    RecordWriter<NodePair> pairs(folder_ / kPairs);
    join_buckets(entries_, [&](uint64_t a, uint64_t b) { pairs.add({a, b}); });
    pairs.close();
    write_facts(folder_, {{"without_shingles", num_without_shingles_}});
  }

 private:
  std::filesystem::path folder_;
  RecordSorter<BandEntry> entries_;
  int64_t num_without_shingles_ = 0;
};

nlohmann::ordered_json facts_of(const MinHashConfig& config, nlohmann::ordered_json facts,
                                int64_t num_without_shingles) {
  facts["without_shingles"] = num_without_shingles;
  facts["bands"] = config.num_bands();
  facts["rows"] = config.num_rows();
  return facts;
}

// All of the pass: candidates are compared by their texts.
class ComparedPart : public PassPart {
 public:
  ComparedPart(const MinHashConfig& config, const PassSpace& space)
      : config_(config),
        folder_(space.folder),
        clusters_(space.folder, space.memory_bytes / 4),
        entries_(space.folder, "bands", space.memory_bytes / 2),
        pairs_(std::in_place, space.folder, config.pairs(space.memory_bytes / 4)) {}

  void add(int64_t number, std::string_view digest) override {
    if (digest.empty()) {
      ++num_without_shingles_;
      return;
    }
    for (int64_t band = 0; band < config_.num_bands(); ++band) {
      BandEntry entry{0, static_cast<uint64_t>(number)};
      std::memcpy(&entry.bucket, digest.data(), sizeof entry.bucket);
      digest.remove_prefix(sizeof entry.bucket);
      entries_.add(entry);
    }
    pairs_->add(static_cast<uint64_t>(number), digest);
  }
  void finish() override {
    pairs_->finish_texts();
    std::vector<uint64_t> bucket;
    uint64_t hash = 0;
    const auto finish_bucket = [&] {
      if (bucket.size() > 1)
        pairs_->compare(std::move(bucket), [this](uint64_t a, uint64_t b) { clusters_.join(a, b); });
      bucket.clear();
    };
    entries_.drain([&](const BandEntry& entry) {
      if (!bucket.empty() && entry.bucket != hash) finish_bucket();
      hash = entry.bucket;
      bucket.push_back(entry.node);
    });
    finish_bucket();
    nlohmann::ordered_json facts = facts_of(config_, clusters_.finish(), num_without_shingles_);
    facts["threshold"] = config_.least_similarity();
    facts["compared"] = pairs_->num_compared();
    facts["alike"] = pairs_->num_alike();
    pairs_.reset();  // with its files
    write_facts(folder_, facts);
  }

 private:
  const MinHashConfig& config_;
  std::filesystem::path folder_;
  Clusters clusters_;
  RecordSorter<BandEntry> entries_;
  std::optional<NearPairs> pairs_;
  int64_t num_without_shingles_ = 0;
};

class MinHashPass : public Pass {
 public:
  explicit MinHashPass(const MinHashConfig& config)
      : config_(config),
        shingles_(config.num_bands() * config.num_rows(), static_cast<uint64_t>(config.seed)),
        windows_(openwebtext_seeds()) {}

  int64_t num_parts() const override { return config_.compares() ? 1 : kHashParts; }

  // The hash of each band (none: nothing that could be alike), and the text where it will be compared.
  void digest(const Document& document, Digests& digests) const override {
    const std::vector<uint64_t> bands = bands_of(document.text);
    const auto bytes = [&](size_t first, size_t count) {
      return std::string_view(reinterpret_cast<const char*>(bands.data() + first), count * sizeof(uint64_t));
    };
    if (bands.empty())
      digests.add(0, document.number, "");
    else if (config_.compares())
      digests.add(0, document.number, std::string(bytes(0, bands.size())) + document.text);
    else
      for (size_t band = 0; band < bands.size(); ++band)
        digests.add(hash_part(bands[band]), document.number, bytes(band, 1));
  }

  std::unique_ptr<PassPart> make_part(int64_t, const PassSpace& space) const override {
    if (config_.compares()) return std::make_unique<ComparedPart>(config_, space);
    return std::make_unique<CandidatesPart>(space);
  }

  void join(const std::vector<std::filesystem::path>& parts, const PassSpace& space) const override {
    Clusters clusters(space.folder, space.memory_bytes);
    int64_t num_without_shingles = 0;
    for (const std::filesystem::path& part : parts) {
      RecordRun<NodePair> pairs(part / kPairs, kBufferedRecords);
      for (NodePair pair; pairs.next(pair);) clusters.join(pair.a, pair.b);
      num_without_shingles += read_facts(part).at("without_shingles").get<int64_t>();
    }
    write_facts(space.folder, facts_of(config_, clusters.finish(), num_without_shingles));
  }

  void open(const std::filesystem::path& folder) override {
    members_ = ClusterMembers(folder);
    facts_ = read_facts(folder);
  }
  Fate decide(Document& document) const override { return members_.decide(document); }
  nlohmann::ordered_json facts() const override { return facts_; }

 private:
  std::vector<uint64_t> bands_of(std::string_view text) const {
    if (config_.is_openwebtext()) {
      if (text::python::num_characters(text.substr(0, 64)) <= 5) return {};  // its set is empty: it resembles no other
      const std::vector<uint32_t> values = windows_(text);
      return band_hashes<uint32_t>(values, config_.num_bands(), config_.num_rows());
    }
    const std::vector<uint64_t> shingles = shingle_hashes(text, config_.unit(), config_.shingle_size());
    if (shingles.empty()) return {};
    return band_hashes<uint64_t>(shingles_(shingles), config_.num_bands(), config_.num_rows());
  }

  MinHashConfig config_;
  ShingleMinHash shingles_;
  WindowMinHash windows_;
  ClusterMembers members_;
  nlohmann::ordered_json facts_;
};

class MinHashMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add_choice("--setting", config_.setting,
                     {{"openwebtext", MinHashSetting::kOpenWebText},
                      {"words", MinHashSetting::kWords},
                      {"characters", MinHashSetting::kCharacters}},
                     "what signatures are made from: windows of 5 bytes under the 100 hashes of the OpenWebText "
                     "pipeline, or runs of words or characters with 64-bit hashes");
    table.add("--shingle", config_.shingle, "words or characters of a run")
        .minimum(1)
        .maximum(1000)
        .default_text("5 words, 13 characters");
    table.add("--bands", config_.bands, "bands of a signature: equal in one, texts are candidates")
        .minimum(1)
        .maximum(1000)
        .default_text("14; openwebtext 10");
    table.add("--rows", config_.rows, "values of a band").minimum(1).maximum(1000).default_text("8; openwebtext 10");
    table.add("--seed", config_.seed, "of the 64-bit hashes");
    table
        .add("--threshold", config_.threshold,
             "candidates are compared run by run, and are duplicates from this Jaccard similarity on; 0 accepts all "
             "candidates, and reads no text twice")
        .default_text("0; openwebtext 0.7");
    table.add_choice("--jaccard", config_.divisor,
                     {{"union", JaccardDivisor::kUnion}, {"min", JaccardDivisor::kMin}, {"max", JaccardDivisor::kMax}},
                     "what the common runs are divided by");
    table
        .add("--heuristic-iter", config_.heuristic_iter,
             "how often a bucket is searched for documents like its first; -1: until one is left")
        .minimum(-1);
  }
  void check(Problems& problems) override {
    if (config_.threshold && (!(*config_.threshold >= 0) || *config_.threshold > 1))
      problems.add("--threshold ", *config_.threshold, ": expected 0 to 1");
    if (!config_.is_openwebtext()) return;
    if (config_.num_bands() * config_.num_rows() != 100)
      problems.add("--bands ", config_.num_bands(), " x --rows ", config_.num_rows(), " is ",
                   config_.num_bands() * config_.num_rows(), ": the setting openwebtext has 100 values");
    if (config_.shingle_size() != 5) problems.add("--shingle ", config_.shingle_size(), ": openwebtext has 5 bytes");
    if (config_.seed != 1) problems.add("--seed ", config_.seed, ": the seeds of openwebtext are fixed");
  }
  std::unique_ptr<Pass> make_pass() const override { return std::make_unique<MinHashPass>(config_); }

 private:
  MinHashConfig config_;
};

}  // namespace

std::unique_ptr<StepMaker> minhash_maker() { return std::make_unique<MinHashMaker>(); }

}  // namespace espalier::curate
