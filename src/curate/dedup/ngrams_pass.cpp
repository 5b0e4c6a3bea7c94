// Decontamination of training data against the texts of evaluations (curate/contamination.h).
#include <cstring>

#include "base/file.h"
#include "base/format.h"
#include "curate/contamination.h"
#include "curate/dedup/dedup.h"
#include "curate/dedup/pass_facts.h"

namespace espalier::curate {
namespace {

struct NgramsConfig {
  std::vector<std::string> against;
  ContaminationSetting setting;
  int64_t most_pieces = 10;
};

// "NAME=FILE" or "NAME:KEY=FILE".
struct TaskFile {
  std::string name, key = "text", path;
};

std::optional<TaskFile> parse_task_file(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == word.size()) return {};
  TaskFile file;
  file.name = word.substr(0, equals);
  file.path = word.substr(equals + 1);
  const size_t colon = file.name.find(':');
  if (colon != std::string::npos) {
    file.key = file.name.substr(colon + 1);
    file.name.resize(colon);
  }
  if (file.name.empty() || file.key.empty()) return {};
  return file;
}

// The value under a key such as "question.text": a string, or a list of strings.
std::vector<std::string> texts_under(const nlohmann::json& record, const std::string& key) {
  const nlohmann::json* value = &record;
  for (const std::string& part : split(key, '.')) {
    if (!value->is_object() || !value->contains(part)) return {};
    value = &(*value)[part];
  }
  if (value->is_string()) return {value->get<std::string>()};
  std::vector<std::string> texts;
  if (value->is_array())
    for (const nlohmann::json& entry : *value)
      if (entry.is_string()) texts.push_back(entry.get<std::string>());
  return texts;
}

void add_task(const TaskFile& file, Contamination& table, Problems& problems) {
  std::string content;
  try {
    content = read_file(file.path);
  } catch (const UserError& error) {
    problems.add("--against ", file.name, ": ", error.what());
    return;
  }
  int64_t line_number = 0, num_texts = 0;
  for (const std::string& line : split(content, '\n')) {
    ++line_number;
    if (strip(line).empty()) continue;
    const nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
    if (record.is_discarded()) {
      problems.add("--against ", file.name, ": ", file.path, ":", line_number, " is not JSON");
      return;
    }
    for (const std::string& text : texts_under(record, file.key)) {
      table.add_task_text(text);
      ++num_texts;
    }
  }
  if (num_texts == 0)
    problems.add("--against ", file.name, ": no record of ", file.path, " has a text '", file.key, "'");
}

constexpr const char* kCounts = "counts";  // an int64 for each n-gram

// In how many documents each n-gram is.
class NgramsPart : public PassPart {
 public:
  NgramsPart(size_t num_ngrams, const PassSpace& space) : folder_(space.folder), counts_(num_ngrams) {}

  void add(int64_t, std::string_view digest) override {
    num_touched_ += !digest.empty();
    for (; !digest.empty(); digest.remove_prefix(sizeof(uint32_t))) {
      uint32_t ngram = 0;
      std::memcpy(&ngram, digest.data(), sizeof ngram);
      ++counts_[ngram];
    }
  }
  void finish() override {
    write_file_atomically(folder_ / kCounts,
                          {reinterpret_cast<const char*>(counts_.data()), counts_.size() * sizeof(int64_t)});
    write_facts(folder_, {{"in_documents", num_touched_}});
  }

 private:
  std::filesystem::path folder_;
  std::vector<int64_t> counts_;
  int64_t num_touched_ = 0;
};

class NgramsPass : public Pass {
 public:
  NgramsPass(const NgramsConfig& config, Contamination table, std::string tasks)
      : config_(config), table_(std::move(table)), tasks_(std::move(tasks)) {
    facts_["ngrams"] = table_.num_ngrams();
    for (const auto& [length, count] : table_.ngrams_by_length()) facts_["by_length"][std::to_string(length)] = count;
  }

  void digest(const Document& document, Digests& digests) const override {
    const std::vector<uint32_t> found = table_.find(document.text);
    if (!found.empty())
      digests.add(0, document.number, {reinterpret_cast<const char*>(found.data()), found.size() * sizeof(uint32_t)});
  }
  std::unique_ptr<PassPart> make_part(int64_t, const PassSpace& space) const override {
    return std::make_unique<NgramsPart>(table_.num_ngrams(), space);
  }
  void open(const std::filesystem::path& folder) override {
    const InputFile file(folder / kCounts);
    std::vector<int64_t> counts(table_.num_ngrams());
    file.read_at(counts.data(), counts.size() * sizeof(int64_t), 0);
    table_.keep_rare(counts);
    facts_["in_documents"] = read_facts(folder).at("in_documents");
    facts_["ngrams_removed"] = table_.num_ngrams();
  }

  Fate decide(Document& document) const override {
    std::vector<std::string> pieces = table_.cut(document.text);
    if (pieces.empty()) return Fate::dropped("contaminated");
    if (static_cast<int64_t>(pieces.size()) > config_.most_pieces)
      return Fate::dropped("too_many_pieces", static_cast<double>(pieces.size()),
                           static_cast<double>(config_.most_pieces));
    const std::optional<std::string> outer = document.metadata.text("split_id");
    std::vector<Document> made(pieces.size(), document);
    for (size_t piece = 0; piece < pieces.size(); ++piece) {
      made[piece].text = std::move(pieces[piece]);
      made[piece].metadata.set(
          "split_id", (outer ? *outer + "-" : "") + format_printf("%s-%010lld-%04zu", tasks_.c_str(),
                                                                  static_cast<long long>(document.number + 1), piece));
    }
    if (made.size() > 1) return Fate::split(std::move(made));
    document = std::move(made.front());
    return Fate::kept();
  }
  nlohmann::ordered_json facts() const override { return facts_; }

 private:
  NgramsConfig config_;
  Contamination table_;
  std::string tasks_;
  nlohmann::ordered_json facts_ = nlohmann::ordered_json::object();
};

class NgramsMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table
        .add("--against", config_.against,
             "JSONL files with the texts of evaluations, each with a name that split_id will have; KEY, as in "
             "race:question=FILE or nq:question.text=FILE, is where a record has its text or a list of texts")
        .value_name("NAME[:KEY]=FILE")
        .required();
    table.add("--max-ngram", config_.setting.most_words, "words of an n-gram").minimum(1).maximum(1000);
    table.add("--min-ngram", config_.setting.least_words, "texts of fewer words are ignored").minimum(1);
    table
        .add("--key-threshold", config_.setting.most_documents,
             "n-grams that occur in this many documents are common phrases, and stay")
        .minimum(1);
    table.add("--least-characters", config_.setting.least_characters, "pieces of this length or less are dropped")
        .minimum(0);
    table
        .add("--remove-characters", config_.setting.margin_characters,
             "what is cut out on each side of an n-gram, and on to the end of the sentence")
        .minimum(0);
    table.add("--most-pieces", config_.most_pieces, "documents cut into more pieces than this are dropped").minimum(1);
  }
  void check(Problems& problems) override {
    table_.emplace(config_.setting);
    if (config_.setting.least_words > config_.setting.most_words)
      problems.add("--min-ngram ", config_.setting.least_words, " is more than --max-ngram ",
                   config_.setting.most_words);
    for (const std::string& word : config_.against) {
      const std::optional<TaskFile> file = parse_task_file(word);
      if (!file) {
        problems.add("--against ", word, ": expected NAME=FILE or NAME:KEY=FILE");
        continue;
      }
      if (("-" + tasks_ + "-").find("-" + file->name + "-") == std::string::npos)
        tasks_ += (tasks_.empty() ? "" : "-") + file->name;
      add_task(*file, *table_, problems);
    }
  }
  std::unique_ptr<Pass> make_pass() const override { return std::make_unique<NgramsPass>(config_, *table_, tasks_); }
  bool may_split() const override { return true; }

 private:
  NgramsConfig config_;
  std::optional<Contamination> table_;
  std::string tasks_;
};

}  // namespace

std::unique_ptr<StepMaker> ngrams_maker() { return std::make_unique<NgramsMaker>(); }

}  // namespace espalier::curate
