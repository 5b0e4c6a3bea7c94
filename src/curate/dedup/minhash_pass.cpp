// Near-duplicates by MinHash signatures and bands, compared shingle by shingle where that is asked for.
#include <cmath>
#include <cstring>

#include "curate/dedup/clusters.h"
#include "curate/dedup/dedup.h"
#include "curate/dedup/minhash.h"
#include "curate/dedup/near_pairs.h"
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

class MinHashPass : public Pass {
 public:
  MinHashPass(const MinHashConfig& config, const PassSpace& space)
      : config_(config),
        nodes_(space.folder),
        clusters_(space.folder, space.memory_bytes / 4),
        entries_(space.folder, "bands", space.memory_bytes / 2),
        shingles_(config.num_bands() * config.num_rows(), static_cast<uint64_t>(config.seed)),
        windows_(openwebtext_seeds()) {
    if (config.compares()) pairs_.emplace(space.folder, config.pairs(space.memory_bytes / 4));
  }

  // The name of the document, the hash of each band (none: nothing that could be alike), and the text where it will be
  // compared.
  std::string digest(const Document& document) const override {
    std::string digest = DocumentNodes::start_digest(document);
    const std::vector<uint64_t> bands = bands_of(document.text);
    digest.append(reinterpret_cast<const char*>(bands.data()), bands.size() * sizeof(uint64_t));
    if (config_.compares() && !bands.empty()) digest += document.text;
    return digest;
  }

  void add(int64_t number, std::string_view digest) override {
    const uint64_t node = nodes_.add(number, digest);
    if (digest.empty()) {
      ++num_without_shingles_;
      return;
    }
    for (int64_t band = 0; band < config_.num_bands(); ++band) {
      BandEntry entry{0, node};
      std::memcpy(&entry.bucket, digest.data(), sizeof entry.bucket);
      digest.remove_prefix(sizeof entry.bucket);
      entries_.add(entry);
    }
    if (pairs_) pairs_->add(node, digest);
  }

  void finish() override {
    nodes_.finish();
    if (pairs_) pairs_->finish_texts();
    std::vector<uint64_t> bucket;  // of which only the first is kept where nothing is compared
    uint64_t hash = 0;
    const auto finish_bucket = [&] {
      if (pairs_ && bucket.size() > 1)
        pairs_->compare(std::move(bucket), [this](uint64_t a, uint64_t b) { clusters_.join(a, b); });
      bucket.clear();
    };
    entries_.drain([&](const BandEntry& entry) {
      if (!bucket.empty() && entry.bucket != hash) finish_bucket();
      hash = entry.bucket;
      if (!pairs_ && !bucket.empty())
        clusters_.join(bucket.front(), entry.node);
      else
        bucket.push_back(entry.node);
    });
    finish_bucket();
    clusters_.finish();
    facts_ = clusters_.facts();
    facts_["without_shingles"] = num_without_shingles_;
    facts_["bands"] = config_.num_bands();
    facts_["rows"] = config_.num_rows();
    if (pairs_) {
      facts_["threshold"] = config_.least_similarity();
      facts_["compared"] = pairs_->num_compared();
      facts_["alike"] = pairs_->num_alike();
    }
  }

  Fate decide(Document& document) const override { return clusters_.decide(nodes_, document); }
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
  DocumentNodes nodes_;
  Clusters clusters_;
  RecordSorter<BandEntry> entries_;
  ShingleMinHash shingles_;
  WindowMinHash windows_;
  std::optional<NearPairs> pairs_;
  int64_t num_without_shingles_ = 0;
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
  std::unique_ptr<Pass> make_pass(const PassSpace& space) const override {
    return std::make_unique<MinHashPass>(config_, space);
  }

 private:
  MinHashConfig config_;
};

}  // namespace

std::unique_ptr<StepMaker> minhash_maker() { return std::make_unique<MinHashMaker>(); }

}  // namespace espalier::curate
