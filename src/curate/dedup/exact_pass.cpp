// Byte-for-byte repetitions: documents, their URLs, or lines and paragraphs within them.
//
// Each has a hash of 128 bits (two texts that differ share one with odds of 10^-18 among 10^10), and its first bits say
// in which of 16 parts it is sorted on disk: O(n log n), memory of a sorter's buffer, 40 bytes on disk for each.
#include <cstring>

#include "base/hash.h"
#include "curate/dedup/dedup.h"
#include "curate/dedup/pass_facts.h"
#include "curate/dedup/record_sorter.h"
#include "curate/dedup/sorted_records.h"
#include "text/python_text.h"

namespace espalier::curate {
namespace {

enum class ExactUnit { kDocument, kUrl, kLine, kParagraph };
enum class ExactKeep { kFirst, kNone };

struct ExactConfig {
  ExactUnit unit = ExactUnit::kDocument;
  ExactKeep keep = ExactKeep::kFirst;
  int64_t times = 2, least_characters = 0;
  std::string url_key = "url";
  bool host_and_path = false;
  bool within() const { return unit == ExactUnit::kLine || unit == ExactUnit::kParagraph; }
};

// Consecutive pieces that make up the text, each with the line ends after it.
std::vector<std::string_view> pieces_of(std::string_view text, ExactUnit unit) {
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.find(unit == ExactUnit::kLine ? "\n" : "\n\n", begin);
    if (end == std::string_view::npos) {
      end = text.size();
    } else if (unit == ExactUnit::kLine) {
      ++end;
    } else {
      end = std::min(text.find_first_not_of('\n', end), text.size());
    }
    pieces.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

struct TextHash {
  uint64_t low = 0, high = 0;
};
TextHash hash_of(std::string_view text) {
  return {hash64(text.data(), text.size(), 1), hash64(text.data(), text.size(), 2)};
}

// The host without user, port and capitals, and the path.
std::string host_and_path(std::string_view url) {
  const size_t scheme = url.find("://");
  if (scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("?#"));
  const size_t slash = std::min(url.find('/'), url.size());
  std::string_view host = url.substr(0, slash);
  if (host.find('@') != std::string_view::npos) host.remove_prefix(host.find('@') + 1);
  host = host.substr(0, host.find(':'));
  return text::python::lowercase(host) + std::string(url.substr(slash));
}

struct ExactEntry {
  uint64_t low, high, node, index;
  bool is_same(const ExactEntry& other) const { return low == other.low && high == other.high; }
  bool operator<(const ExactEntry& other) const {
    if (low != other.low) return low < other.low;
    if (high != other.high) return high < other.high;
    return node != other.node ? node < other.node : index < other.index;
  }
};

struct ExactDrop {
  uint64_t node, index, kept;
  bool operator<(const ExactDrop& other) const {
    if (node != other.node) return node < other.node;
    return index != other.index ? index < other.index : kept < other.kept;
  }
};

constexpr const char* kDrops = "drops";

// Compares the hashes of its part.
class ExactPart : public PassPart {
 public:
  ExactPart(const ExactConfig& config, const PassSpace& space)
      : config_(config), folder_(space.folder), entries_(space.folder, "entries", space.memory_bytes) {}

  void add(int64_t number, std::string_view digest) override {
    ExactEntry entry{0, 0, static_cast<uint64_t>(number), 0};
    uint64_t words[3];
    std::memcpy(words, digest.data(), sizeof words);
    entry.index = words[0];
    entry.low = words[1];
    entry.high = words[2];
    entries_.add(entry);
  }

  void finish() override {
    RecordWriter<ExactDrop> drops(folder_ / kDrops);
    // Of a group of equal entries, those below the configured number wait: one or a few.
    std::vector<ExactEntry> waiting;
    int64_t size = 0, num_distinct = 0, num_duplicates = 0;
    ExactEntry first{};
    const auto drop = [&](const ExactEntry& entry) {
      drops.add({entry.node, entry.index, first.node});
      ++num_duplicates;
    };
    entries_.drain([&](const ExactEntry& entry) {
      if (size == 0 || !entry.is_same(first)) {
        first = entry;
        size = 0;
        waiting.clear();
        ++num_distinct;
      }
      ++size;
      if (size > 1 || config_.keep == ExactKeep::kNone) waiting.push_back(entry);
      if (size < config_.times) return;
      for (const ExactEntry& repeated : waiting) drop(repeated);
      waiting.clear();
    });
    drops.close();
    write_facts(folder_,
                {{"compared", entries_.num_records()}, {"distinct", num_distinct}, {"duplicates", num_duplicates}});
  }

 private:
  const ExactConfig& config_;
  std::filesystem::path folder_;
  RecordSorter<ExactEntry> entries_;
};

class ExactPass : public Pass {
 public:
  explicit ExactPass(const ExactConfig& config) : config_(config) {}

  int64_t num_parts() const override { return kHashParts; }

  // For each unit its index, from 0, and its hash.
  void digest(const Document& document, Digests& digests) const override {
    const auto add = [&](uint64_t index, std::string_view text) {
      const TextHash hash = hash_of(text);
      const uint64_t words[] = {index, hash.low, hash.high};
      digests.add(hash_part(hash.low), document.number, {reinterpret_cast<const char*>(words), sizeof words});
    };
    if (config_.unit == ExactUnit::kDocument) {
      add(0, document.text);
    } else if (config_.unit == ExactUnit::kUrl) {
      if (const std::optional<std::string> url = document.metadata.text(config_.url_key))
        add(0, config_.host_and_path ? host_and_path(*url) : *url);
    } else {
      uint64_t index = 0;
      for (const std::string_view piece : pieces_of(document.text, config_.unit)) {
        const std::string_view key = text::python::strip(piece);
        if (!key.empty() && text::python::num_characters(key) >= config_.least_characters) add(index, key);
        ++index;
      }
    }
  }

  std::unique_ptr<PassPart> make_part(int64_t, const PassSpace& space) const override {
    return std::make_unique<ExactPart>(config_, space);
  }

  void join(const std::vector<std::filesystem::path>& parts, const PassSpace& space) const override {
    RecordSorter<ExactDrop> drops(space.folder, "sorted", space.memory_bytes);
    nlohmann::ordered_json sums = {{"compared", 0}, {"distinct", 0}, {"duplicates", 0}};
    for (const std::filesystem::path& part : parts) {
      RecordRun<ExactDrop> run(part / kDrops, kBufferedRecords);
      for (ExactDrop drop; run.next(drop);) drops.add(drop);
      const nlohmann::ordered_json counts = read_facts(part);
      for (auto& [name, sum] : sums.items()) sum = sum.get<int64_t>() + counts.at(name).get<int64_t>();
    }
    RecordWriter<ExactDrop> writer(space.folder / kDrops);
    drops.drain([&](const ExactDrop& drop) { writer.add(drop); });
    writer.close();
    write_facts(space.folder, sums);
  }

  void open(const std::filesystem::path& folder) override {
    drops_ = SortedRecords<ExactDrop>(folder / kDrops);
    facts_ = read_facts(folder);
  }

  Fate decide(Document& document) const override {
    const std::span<const ExactDrop> drops = drops_.of(static_cast<uint64_t>(document.number));
    if (drops.empty()) return Fate::kept();
    if (config_.within()) return remove_pieces(document, drops);
    return Fate::dropped("duplicate", {}, static_cast<double>(drops.front().kept));
  }

  nlohmann::ordered_json facts() const override { return facts_; }

  std::string doubt() const override {
    return config_.unit == ExactUnit::kUrl && facts_.at("compared") == 0 ? no_url_doubt(config_.url_key) : "";
  }

 private:
  Fate remove_pieces(Document& document, std::span<const ExactDrop> drops) const {
    std::string text;
    uint64_t index = 0;
    size_t next = 0;
    for (const std::string_view piece : pieces_of(document.text, config_.unit)) {
      if (next < drops.size() && drops[next].index == index++)
        ++next;
      else
        text += piece;
    }
    if (text::python::strip(text).empty())
      return Fate::dropped("only_duplicates", static_cast<double>(drops.size()),
                           static_cast<double>(drops.front().kept));
    // If the last piece is removed, so is the separator before it.
    while (text.ends_with('\n') && !document.text.ends_with('\n')) text.pop_back();
    document.text = std::move(text);
    return Fate::kept();
  }

  ExactConfig config_;
  SortedRecords<ExactDrop> drops_;
  nlohmann::ordered_json facts_;
};

class ExactMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add_choice("--unit", config_.unit,
                     {{"document", ExactUnit::kDocument},
                      {"url", ExactUnit::kUrl},
                      {"line", ExactUnit::kLine},
                      {"paragraph", ExactUnit::kParagraph}},
                     "what is compared: whole texts, their URLs, or the lines or paragraphs of all texts, of which the "
                     "repeated ones are removed from their text; paragraphs are separated by empty lines");
    table.add_choice("--keep", config_.keep, {{"first", ExactKeep::kFirst}, {"none", ExactKeep::kNone}},
                     "which of several equal ones stays: the one in the document with the lowest number, or none");
    table.add("--times", config_.times, "how often it must occur to be removed").minimum(2).maximum(1000000);
    table.add("--least-characters", config_.least_characters, "shorter lines and paragraphs stay").minimum(0);
    table.add("--url-key", config_.url_key, "key of the record that holds the URL; without it, a document stays")
        .value_name("KEY");
    table.add("--host-and-path", config_.host_and_path,
              "URLs are equal where host and path are, without scheme, user, port, query and fragment");
  }
  std::unique_ptr<Pass> make_pass() const override { return std::make_unique<ExactPass>(config_); }

 private:
  ExactConfig config_;
};

}  // namespace

std::unique_ptr<StepMaker> exact_maker() { return std::make_unique<ExactMaker>(); }

}  // namespace espalier::curate
