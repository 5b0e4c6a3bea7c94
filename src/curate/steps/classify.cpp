// Steps that ask a model about a text: its language, its quality.
#include <algorithm>

#include "curate/language_id.h"
#include "curate/steps/steps.h"

namespace espalier::curate {
namespace {

class LanguageStep : public Step {
 public:
  LanguageStep(const LanguageIdentifier& identifier, std::vector<std::string> kept, double least, std::string key)
      : identifier_(identifier), kept_(std::move(kept)), least_(least), key_(std::move(key)) {}

  Fate apply(Document& document) const override {
    const LanguageGuess guess = identifier_.guess(document.text);
    document.metadata.set(key_, guess.code);  // of one that goes, too: progress tells what is kept of each
    document.metadata.set(key_ + "_score", guess.score);
    if (!kept_.empty() && std::find(kept_.begin(), kept_.end(), guess.code) == kept_.end())
      return Fate::dropped("language", guess.score);
    if (guess.score < least_) return Fate::dropped("language_score", guess.score, least_);
    return Fate::kept();
  }
  void measure(const Document& document, std::vector<Measure>& measures) const override {
    measures.push_back({"language_score", identifier_.guess(document.text).score, least_, true});
  }

 private:
  const LanguageIdentifier& identifier_;
  std::vector<std::string> kept_;
  double least_;
  std::string key_;
};

class LanguageMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table
        .add("--model", model_,
             "a fastText model such as lid.176.bin, which is asked about the text in lower case; cld2 needs none")
        .value_name("FILE");
    table.add("--keep", kept_, "drop documents in other languages; all stay unless it is given").value_name("CODE");
    table.add("--least-score", least_, "drop documents of which the model is less sure").minimum(0).maximum(1);
    table.add("--key", key_, "writes the language under this key, and its score under KEY_score").value_name("KEY");
  }
  void check(Problems& problems) override {
    if (model_ == "cld2") {
      identifier_ = cld2_identifier();
      return;
    }
    std::unique_ptr<TextClassifier> model = load_classifier(model_, "--model", problems);
    if (model == nullptr) return;
    const std::vector<std::string> labels = model->labels();
    for (const std::string& code : kept_)
      if (std::find(labels.begin(), labels.end(), code) == labels.end())
        problems.add("--keep ", code, ": the model has no such label");
    identifier_ = model_identifier(std::move(model));
  }
  std::unique_ptr<Step> make_step() const override {
    return std::make_unique<LanguageStep>(*identifier_, kept_, least_, key_);
  }

 private:
  std::string model_ = "cld2", key_ = "language";
  std::vector<std::string> kept_;
  double least_ = 0;
  std::unique_ptr<LanguageIdentifier> identifier_;
};

class QualityStep : public Step {
 public:
  QualityStep(const TextClassifier& model, int num_labels, std::string label, double least, std::string key)
      : model_(model), num_labels_(num_labels), label_(std::move(label)), least_(least), key_(std::move(key)) {}

  Fate apply(Document& document) const override {
    const double probability = probability_of(document.text);
    if (probability < least_) return Fate::dropped("quality", probability, least_);
    document.metadata.set(key_, probability);
    return Fate::kept();
  }
  void measure(const Document& document, std::vector<Measure>& measures) const override {
    measures.push_back({"quality", probability_of(document.text), least_, true});
  }

 private:
  double probability_of(std::string_view text) const {
    for (const TextClassifier::Label& label : model_.classify(text, num_labels_))
      if (label.name == label_) return label.probability;
    return 0;
  }

  const TextClassifier& model_;
  int num_labels_;
  std::string label_;
  double least_;
  std::string key_;
};

class QualityMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add("--model", file_, "a fastText model that tells good text from bad").value_name("FILE").required();
    table.add("--label", label_, "what the model calls good text, with or without __label__").required();
    table.add("--least", least_, "drop documents of a smaller probability").minimum(0).maximum(1);
    table.add("--key", key_, "writes the probability under this key").value_name("KEY");
  }
  void check(Problems& problems) override {
    if (file_.empty()) return;  // said by its row
    model_ = load_classifier(file_, "--model", problems);
    if (label_.starts_with("__label__")) label_.erase(0, std::string_view("__label__").size());
    if (model_ == nullptr || label_.empty()) return;
    const std::vector<std::string> labels = model_->labels();
    num_labels_ = static_cast<int>(labels.size());
    std::string known;
    for (const std::string& label : labels) known += (known.empty() ? "" : ", ") + label;
    if (std::find(labels.begin(), labels.end(), label_) == labels.end())
      problems.add("--label ", label_, ": the labels of ", file_, " are ", known);
  }
  std::unique_ptr<Step> make_step() const override {
    return std::make_unique<QualityStep>(*model_, num_labels_, label_, least_, key_);
  }

 private:
  std::string file_, label_, key_ = "quality";
  double least_ = 0.5;
  int num_labels_ = 0;
  std::unique_ptr<TextClassifier> model_;
};

}  // namespace

std::unique_ptr<StepMaker> language_maker() { return std::make_unique<LanguageMaker>(); }
std::unique_ptr<StepMaker> quality_maker() { return std::make_unique<QualityMaker>(); }

}  // namespace espalier::curate
