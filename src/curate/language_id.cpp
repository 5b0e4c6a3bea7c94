#include "curate/language_id.h"

#include <cld2/public/compact_lang_det.h>
#include <cld2/public/encodings.h>
#include <fasttext/fasttext.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <sstream>

#include "curate/python_lower.h"

namespace espalier::curate {
namespace {

constexpr std::string_view kLabelPrefix = "__label__";

class FastTextClassifier : public TextClassifier {
 public:
  explicit FastTextClassifier(const std::string& file) { model_.loadModel(file); }

  std::vector<Label> classify(std::string_view text, int count) const override {
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

  std::vector<std::string> labels() const override {
    std::vector<std::string> names;
    const auto dictionary = model_.getDictionary();
    for (int32_t label = 0; label < dictionary->nlabels(); ++label) names.push_back(plain(dictionary->getLabel(label)));
    return names;
  }

 private:
  static std::string plain(const std::string& name) {
    return name.starts_with(kLabelPrefix) ? name.substr(kLabelPrefix.size()) : name;
  }

  fasttext::FastText model_;
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
