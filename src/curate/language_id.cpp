#include "curate/language_id.h"

#include <cld2/public/compact_lang_det.h>
#include <cld2/public/encodings.h>
#include <fasttext/fasttext.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>

#include "base/hash.h"
#include "curate/python_lower.h"

namespace espalier::curate {
namespace {

constexpr std::string_view kLabelPrefix = "__label__";

// The rows of a model for a word and the pieces of it. Words recur, and to look up their pieces takes long.
class RowsOfWords {
 public:
  // Appends the rows of `word`.
  void append(const fasttext::Dictionary& dictionary, std::string_view word, std::vector<int32_t>& rows) {
    Entry& entry = entries_[hash64(word.data(), word.size()) % kEntries];
    if (!entry.is_known || entry.word != word)
      entry = {true, std::string(word), rows_of(dictionary, std::string(word))};
    if (word.size() > kLongestKept) entry.is_known = false;
    rows.insert(rows.end(), entry.rows.begin(), entry.rows.end());
  }

 private:
  static constexpr size_t kEntries = size_t{1} << 14, kLongestKept = 64;
  struct Entry {
    bool is_known = false;
    std::string word;
    std::vector<int32_t> rows;
  };
  // A label in the text is no word of it.
  static std::vector<int32_t> rows_of(const fasttext::Dictionary& dictionary, const std::string& word) {
    const int32_t id = dictionary.getId(word);
    const bool is_word = (id < 0 ? dictionary.getType(word) : dictionary.getType(id)) == fasttext::entry_type::word;
    return is_word ? dictionary.getSubwords(word) : std::vector<int32_t>();
  }

  std::vector<Entry> entries_{kEntries};
};

class FastTextClassifier : public TextClassifier {
 public:
  explicit FastTextClassifier(const std::string& file) {
    model_.loadModel(file);
    dictionary_ = model_.getDictionary();
    has_runs_of_words_ = model_.getArgs().wordNgrams > 1;
  }

  // fastText's predictLine(), whose streams and look-ups take most of its time.
  std::vector<Label> classify(std::string_view text, int count) const override {
    if (has_runs_of_words_) return classify_line(text, count);
    const std::vector<int32_t> rows = rows_of(text);
    fasttext::Predictions predictions;
    model_.predict(count, rows, predictions, 0);
    std::vector<Label> labels;
    for (const auto& [log_probability, label] : predictions)
      labels.push_back({plain(dictionary_->getLabel(label)), static_cast<double>(std::exp(log_probability))});
    return labels;
  }

  std::vector<std::string> labels() const override {
    std::vector<std::string> names;
    for (int32_t label = 0; label < dictionary_->nlabels(); ++label)
      names.push_back(plain(dictionary_->getLabel(label)));
    return names;
  }

 private:
  // Of its words and of the end of the line, which a text may say too.
  std::vector<int32_t> rows_of(std::string_view text) const {
    constexpr size_t kModels = 8;
    thread_local std::map<int64_t, RowsOfWords> rows_of_models;
    if (rows_of_models.size() > kModels) rows_of_models.clear();
    RowsOfWords& rows_of_words = rows_of_models[number_];
    constexpr std::string_view kBlanks(" \n\r\t\v\f\0", 7);
    std::vector<int32_t> rows;
    for (size_t begin = 0; (begin = text.find_first_not_of(kBlanks, begin)) != std::string_view::npos;) {
      const size_t end = std::min(text.find_first_of(kBlanks, begin), text.size());
      const std::string_view word = text.substr(begin, end - begin);
      if (word == fasttext::Dictionary::EOS) break;
      rows_of_words.append(*dictionary_, word, rows);
      begin = end;
    }
    rows_of_words.append(*dictionary_, fasttext::Dictionary::EOS, rows);
    return rows;
  }

  std::vector<Label> classify_line(std::string_view text, int count) const {
    std::string line(text);
    std::replace(line.begin(), line.end(), '\n', ' ');
    line += '\n';
    std::istringstream stream(line);
    std::vector<std::pair<fasttext::real, std::string>> predictions;
    model_.predictLine(stream, predictions, count, 0);
    std::vector<Label> labels;
    for (const auto& [probability, name] : predictions)
      labels.push_back({plain(name), static_cast<double>(probability)});
    return labels;
  }

  static std::string plain(const std::string& name) {
    return name.starts_with(kLabelPrefix) ? name.substr(kLabelPrefix.size()) : name;
  }

  static int64_t next_number() {
    static std::atomic<int64_t> next = 0;
    return next++;
  }

  fasttext::FastText model_;
  std::shared_ptr<const fasttext::Dictionary> dictionary_;
  bool has_runs_of_words_ = false;
  int64_t number_ = next_number();
};

class ModelIdentifier : public LanguageIdentifier {
 public:
  explicit ModelIdentifier(std::unique_ptr<TextClassifier> model) : model_(std::move(model)) {}
  LanguageGuess guess(std::string_view text) const override {
    const std::vector<TextClassifier::Label> labels = model_->classify(python_lower(text), 1);
    if (labels.empty()) return {};
    return {labels.front().name, labels.front().probability};
  }

 private:
  std::unique_ptr<TextClassifier> model_;
};

class Cld2Identifier : public LanguageIdentifier {
 public:
  LanguageGuess guess(std::string_view text) const override {
    // The largest text that it accepts; less is enough to tell languages.
    const int size = static_cast<int>(std::min<size_t>(text.size(), std::numeric_limits<int>::max() / 2));
    CLD2::Language languages[3];
    int percents[3], text_bytes = 0;
    bool is_reliable = false;
    CLD2::DetectLanguageSummary(text.data(), size, /*is_plain_text=*/true, languages, percents, &text_bytes,
                                &is_reliable);
    if (languages[0] == CLD2::UNKNOWN_LANGUAGE) return {};
    const std::string code = CLD2::LanguageCode(languages[0]);
    return {code == "iw" ? "he" : code, percents[0] / 100.0};
  }
};

}  // namespace

std::unique_ptr<TextClassifier> load_classifier(const std::string& file, const std::string& option,
                                                Problems& problems) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    problems.add(option, " ", file, std::filesystem::exists(file, error) ? " is not a file" : ": no such file");
    return nullptr;
  }
  try {
    auto model = std::make_unique<FastTextClassifier>(file);
    if (!model->labels().empty()) return model;
    problems.add(option, " ", file, ": a fastText model without labels, which cannot classify");
  } catch (const std::exception&) {
    problems.add(option, " ", file, ": not a fastText model (.bin or .ftz), or a damaged one");
  }
  return nullptr;
}

std::unique_ptr<LanguageIdentifier> cld2_identifier() { return std::make_unique<Cld2Identifier>(); }
std::unique_ptr<LanguageIdentifier> model_identifier(std::unique_ptr<TextClassifier> model) {
  return std::make_unique<ModelIdentifier>(std::move(model));
}

}  // namespace espalier::curate
