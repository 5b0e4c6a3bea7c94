// Documents by how surprising they are to a language model of n-grams, and CCNet's buckets of them.
#include <algorithm>
#include <charconv>
#include <map>

#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "curate/lm/perplexity.h"
#include "curate/steps/steps.h"

namespace espalier::curate {
namespace {

struct Cutoffs {
  double head = 0, tail = 0;
};

struct PerplexityRules {
  std::string key, bucket_key, language, language_key;
  std::optional<double> least, most;
  std::map<std::string, Cutoffs> cutoffs;  // by language; "" stands for all
  std::vector<std::string> kept_buckets;
  bool has_buckets() const { return !cutoffs.empty(); }
};

class PerplexityStep : public Step {
 public:
  PerplexityStep(const PerplexityScorer& scorer, const PerplexityRules& rules) : scorer_(scorer), rules_(rules) {}

  Fate apply(Document& document) const override {
    const std::string language = document.metadata.text(rules_.language_key).value_or("");
    if (!rules_.language.empty() && language != rules_.language) return Fate::kept();
    const std::optional<double> perplexity = scorer_(document.text);
    if (perplexity) {
      if (rules_.most && *perplexity > *rules_.most) return Fate::dropped("perplexity", perplexity, rules_.most);
      if (rules_.least && *perplexity < *rules_.least) return Fate::dropped("low_perplexity", perplexity, rules_.least);
    }
    if (rules_.has_buckets()) {
      const std::string bucket = bucket_of(perplexity, language);
      if (!rules_.kept_buckets.empty() &&
          std::find(rules_.kept_buckets.begin(), rules_.kept_buckets.end(), bucket) == rules_.kept_buckets.end())
        return Fate::dropped("bucket_" + bucket, perplexity);
      document.metadata.set(rules_.bucket_key, bucket);
    }
    if (perplexity) document.metadata.set(rules_.key, *perplexity);
    return Fate::kept();
  }
  void measure(const Document& document, std::vector<Measure>& measures) const override {
    const std::string language = document.metadata.text(rules_.language_key).value_or("");
    if (!rules_.language.empty() && language != rules_.language) return;
    const std::optional<double> perplexity = scorer_(document.text);
    if (!perplexity) return;
    measures.push_back({"perplexity", *perplexity, rules_.most, false});
    if (rules_.least) measures.push_back({"low_perplexity", *perplexity, rules_.least, true});
  }

 private:
  std::string bucket_of(std::optional<double> perplexity, const std::string& language) const {
    auto found = rules_.cutoffs.find(language);
    if (found == rules_.cutoffs.end()) found = rules_.cutoffs.find("");
    if (found == rules_.cutoffs.end() || !perplexity) return "all";
    if (*perplexity < found->second.head) return "head";
    return *perplexity < found->second.tail ? "middle" : "tail";
  }

  const PerplexityScorer& scorer_;
  const PerplexityRules& rules_;
};

// CCNet's cutoff.csv: a line of languages after an empty field, then a line for each percentile.
class CutoffTable {
 public:
  CutoffTable(const std::string& file, Problems& problems) : file_(file) {
    std::vector<std::string> lines;
    try {
      lines = split(read_file(file), '\n');
    } catch (const UserError& error) {
      problems.add("--cutoffs: ", error.what());
      return;
    }
    for (std::string& line : lines) {
      while (!line.empty() && line.back() == '\r') line.pop_back();
      if (!line.empty()) rows_.push_back(split(line, ','));
    }
    if (rows_.size() < 2 || rows_.front().size() < 2)
      problems.add("--cutoffs ", file,
                   ": expected lines of fields between commas, the languages first, then a percentile a line");
    for (const std::vector<std::string>& row : rows_)
      if (row.size() != rows_.front().size())
        problems.add("--cutoffs ", file, ": the line '", join(row, ","), "' has ", row.size(),
                     " fields, the first has ", rows_.front().size());
  }

  std::map<std::string, Cutoffs> take(int64_t head, int64_t tail, Problems& problems) const {
    std::map<std::string, Cutoffs> cutoffs;
    const std::vector<std::string>*const of_head = row_of(head, problems), *const of_tail = row_of(tail, problems);
    if (of_head == nullptr || of_tail == nullptr) return cutoffs;
    for (size_t column = 1; column < rows_.front().size(); ++column)
      cutoffs[rows_.front()[column]] = {number((*of_head)[column], problems), number((*of_tail)[column], problems)};
    return cutoffs;
  }

 private:
  const std::vector<std::string>* row_of(int64_t percentile, Problems& problems) const {
    for (size_t row = 1; row < rows_.size(); ++row)
      if (rows_[row].front() == concat(percentile)) return &rows_[row];
    problems.add("--cutoffs ", file_, ": there is no line for percentile ", percentile);
    return nullptr;
  }
  double number(const std::string& text, Problems& problems) const {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      problems.add("--cutoffs ", file_, ": expected a perplexity, found '", text, "'");
    return value;
  }

  std::string file_;
  std::vector<std::vector<std::string>> rows_;
};

class PerplexityMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add("--model", files_.model, "a binary file of KenLM, or an ARPA file, plain or compressed")
        .value_name("FILE")
        .required();
    table.add("--sentencepiece", files_.sentencepiece, "the model's pieces; without it, words are separated by blanks")
        .value_name("FILE");
    table.add_choice(
        "--setting", files_.setting,
        {{"plain", ModelText::kPlain}, {"ccnet", ModelText::kCcnet}, {"bigscience", ModelText::kBigScience}},
        "the text that the model was trained on: as it is, a line a sentence; or as CCNet's or BigScience's, which are "
        "measured with --sentencepiece");
    table.add("--most", rules_.most, "drop documents of a higher perplexity").minimum(0).default_text("none");
    table.add("--least", rules_.least, "drop documents of a lower perplexity").minimum(0).default_text("none");
    table.add("--head", head_, "below it, the bucket is head").minimum(0).default_text("no buckets");
    table.add("--tail", tail_, "from it on, the bucket is tail; between them it is middle")
        .minimum(0)
        .default_text("no buckets");
    table.add("--cutoffs", cutoffs_, "CCNet's cutoff.csv: --head and --tail of each language, by percentiles")
        .value_name("FILE");
    table.add("--percentile-head", percentile_head_, "the line of --cutoffs that is --head").minimum(0).maximum(100);
    table.add("--percentile-tail", percentile_tail_, "the line of --cutoffs that is --tail").minimum(0).maximum(100);
    table.add("--keep-buckets", rules_.kept_buckets, "drop documents of other buckets")
        .choices({"head", "middle", "tail", "all"});
    table.add("--language", rules_.language, "leave documents of other languages as they are").value_name("CODE");
    table.add("--language-key", rules_.language_key, "where a document has its language").value_name("KEY");
    table.add("--key", rules_.key, "writes the perplexity under this key").value_name("KEY");
    table.add("--bucket-key", rules_.bucket_key, "writes the bucket under this key").value_name("KEY");
  }

  void check(Problems& problems) override {
    if (files_.model.empty()) return;  // its row reports that
    if (files_.setting != ModelText::kPlain && files_.sentencepiece.empty())
      problems.add("--setting ", files_.setting == ModelText::kCcnet ? "ccnet" : "bigscience",
                   " needs --sentencepiece FILE, whose pieces the model knows");
    if (rules_.least && rules_.most && *rules_.least > *rules_.most)
      problems.add("--least ", *rules_.least, " is more than --most ", *rules_.most);
    check_buckets(problems);
    if (!problems.empty()) return;
    try {
      scorer_ = std::make_unique<PerplexityScorer>(files_);
    } catch (const UserError& error) {
      problems.add(error.what());
      return;
    }
    const char* const text = files_.setting == ModelText::kPlain   ? "the text as it is"
                             : files_.setting == ModelText::kCcnet ? "CCNet's text"
                                                                   : "BigScience's text";
    log_info("perplexity: ", scorer_->model().description(), ", of ", text,
             files_.sentencepiece.empty() ? "" : " in SentencePiece's pieces");
  }

  std::unique_ptr<Step> make_step() const override { return std::make_unique<PerplexityStep>(*scorer_, rules_); }

 private:
  void check_buckets(Problems& problems) {
    if (head_.has_value() != tail_.has_value())
      problems.add(head_ ? "--head without --tail" : "--tail without --head", ": give both");
    if (head_ && tail_ && *head_ > *tail_) problems.add("--head ", *head_, " is more than --tail ", *tail_);
    if (!cutoffs_.empty() && (head_ || tail_)) problems.add("--cutoffs and --head or --tail: give one of them");
    if (percentile_head_ > percentile_tail_)
      problems.add("--percentile-head ", percentile_head_, " is more than --percentile-tail ", percentile_tail_);
    rules_.cutoffs.clear();
    if (head_ && tail_) rules_.cutoffs[""] = {*head_, *tail_};
    if (!cutoffs_.empty()) {
      Problems found;
      const CutoffTable table(cutoffs_, found);
      if (found.empty()) rules_.cutoffs = table.take(percentile_head_, percentile_tail_, found);
      for (const std::string& message : found.messages()) problems.add(message);
      if (found.empty() && !rules_.language.empty() && !rules_.cutoffs.contains(rules_.language))
        problems.add("--cutoffs ", cutoffs_, ": there is no column ", rules_.language);
    }
    if (!rules_.kept_buckets.empty() && !head_ && !tail_ && cutoffs_.empty())
      problems.add("--keep-buckets needs --head and --tail, or --cutoffs");
  }

  PerplexityScorer::Files files_;
  PerplexityRules rules_{.key = "perplexity",
                         .bucket_key = "bucket",
                         .language = "",
                         .language_key = "language",
                         .least = {},
                         .most = {},
                         .cutoffs = {},
                         .kept_buckets = {}};
  std::optional<double> head_, tail_;
  std::string cutoffs_;
  int64_t percentile_head_ = 30, percentile_tail_ = 60;
  std::unique_ptr<PerplexityScorer> scorer_;
};

}  // namespace

std::unique_ptr<StepMaker> perplexity_maker() { return std::make_unique<PerplexityMaker>(); }

}  // namespace espalier::curate
