// OSCAR's modification and filters as BigScience used them.
#include "base/format.h"
#include "base/log.h"
#include "curate/language_id.h"
#include "curate/lm/perplexity.h"
#include "curate/steps/oscar_filters.h"
#include "curate/steps/steps.h"
#include "curate/word_list.h"

namespace espalier::curate {
namespace {

// What the filters compare a document with. A missing list or model switches its filter off, as upstream.
struct OscarRules {
  OscarParameters parameters;
  std::string language;
  WordSet stop_words, flagged_words;
  std::unique_ptr<LanguageIdentifier> identifier;
  std::unique_ptr<text::SentencePieceCutter> cutter;  // of languages whose words are its pieces
  std::unique_ptr<PerplexityScorer> scorer;
};

class OscarStep : public JudgedStep {
 public:
  explicit OscarStep(const OscarRules& rules) : rules_(rules) {}

 private:
  void prepare(Document& document) const override { document.text = oscar_modified(document.text, rules_.parameters); }
  void judge(const Document& document, Judge& judge) const override {
    const OscarParameters& limits = rules_.parameters;
    const std::vector<std::string> words = words_of(document.text, /*lower_case=*/true);
    const auto num_words = static_cast<double>(words_of(document.text, /*lower_case=*/false).size());
    if (judge.least("words", num_words, static_cast<double>(limits.least_words)) &&
        judge.most("words", num_words, static_cast<double>(limits.most_words)) &&
        judge.most("character_repetition", character_repetition(document.text, limits.character_window),
                   limits.most_character_repetition) &&
        judge.most("word_repetition", word_repetition(words, limits.word_window), limits.most_word_repetition) &&
        judge.most("special_characters", special_character_share(document.text), limits.most_special) &&
        check_lists(words, judge))
      check_models(document, judge);
  }

  std::vector<std::string> words_of(std::string_view text, bool lower_case) const {
    if (rules_.cutter == nullptr) return oscar_words(text, lower_case);
    return oscar_words_of(rules_.cutter->cut(bigscience_words_text(text)), lower_case);
  }

  bool check_lists(const std::vector<std::string>& words, Judge& judge) const {
    const OscarParameters& limits = rules_.parameters;
    if (!rules_.stop_words.empty() &&
        !judge.least("stop_words", listed_word_share(words, rules_.stop_words, limits.pairs), limits.least_stop_words))
      return false;
    return rules_.flagged_words.empty() ||
           judge.most("flagged_words", listed_word_share(words, rules_.flagged_words, limits.pairs),
                      limits.most_flagged_words);
  }

  void check_models(const Document& document, Judge& judge) const {
    const OscarParameters& limits = rules_.parameters;
    if (rules_.identifier != nullptr) {
      const LanguageGuess guess = rules_.identifier->guess(document.text);
      if (!judge.drop_if(guess.code != rules_.language, "language", guess.score) ||
          !judge.least("language_score", guess.score, limits.least_language_score))
        return;
    }
    if (rules_.scorer != nullptr)
      judge.most("perplexity", (*rules_.scorer)(document.text).value(), limits.most_perplexity);
  }

  const OscarRules& rules_;
};

class OscarMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add("--language", language_, "whose thresholds are taken; what a document must be in, with --language-model")
        .value_name("CODE")
        .required();
    table.add("--stop-words", stop_words_, "a word a line; without it, the filter of stop words is off")
        .value_name("FILE");
    table.add("--flagged-words", flagged_words_, "a word a line; without it, the filter of flagged words is off")
        .value_name("FILE");
    table
        .add("--language-model", language_model_,
             "a fastText model such as lid.176.bin, or cld2; without it, the filter of languages is off")
        .value_name("FILE");
    table
        .add("--perplexity-model", perplexity_.model,
             "a binary file of KenLM, or an ARPA file; without it, the filter of perplexity is off")
        .value_name("FILE");
    table
        .add("--sentencepiece", perplexity_.sentencepiece,
             "the pieces that --perplexity-model knows, and the words of zh, which needs it")
        .value_name("FILE");
    add_threshold_rows(table);
  }

  void check(Problems& problems) override {
    const OscarParameters* parameters = find_oscar_parameters(language_);
    if (parameters == nullptr) parameters = find_oscar_parameters("default");
    check_models(*parameters, problems);
    rules_.parameters = *parameters;
    rules_.language = language_;
    if (!stop_words_.empty()) rules_.stop_words = read_word_list(stop_words_, "--stop-words", problems);
    if (!flagged_words_.empty()) rules_.flagged_words = read_word_list(flagged_words_, "--flagged-words", problems);
    if (language_model_ == "cld2") {
      rules_.identifier = cld2_identifier();
    } else if (!language_model_.empty()) {
      if (auto model = load_classifier(language_model_, "--language-model", problems))
        rules_.identifier = model_identifier(std::move(model));
    }
    take_thresholds();
    if (rules_.parameters.least_words > rules_.parameters.most_words)
      problems.add("--least-words ", rules_.parameters.least_words, " is more than --most-words ",
                   rules_.parameters.most_words);
    if (problems.empty()) say_what_is_off();
  }

  std::unique_ptr<Step> make_step() const override { return std::make_unique<OscarStep>(rules_); }

 private:
  void check_models(const OscarParameters& parameters, Problems& problems) {
    if (perplexity_.sentencepiece.empty()) {
      if (parameters.splits_by_model)
        problems.add("--language ", language_, " needs --sentencepiece FILE: its words are the pieces of a model");
      if (!perplexity_.model.empty())
        problems.add("--perplexity-model needs --sentencepiece FILE, whose pieces it knows");
      return;
    }
    if (perplexity_.model.empty() && !parameters.splits_by_model)
      problems.add("--sentencepiece without --perplexity-model: no filter uses it");
    try {
      if (parameters.splits_by_model)
        rules_.cutter = std::make_unique<text::SentencePieceCutter>(perplexity_.sentencepiece);
      if (!perplexity_.model.empty()) rules_.scorer = std::make_unique<PerplexityScorer>(perplexity_);
    } catch (const UserError& error) {
      problems.add(error.what());
    }
  }

  void say_what_is_off() const {
    if (find_oscar_parameters(language_) == nullptr)
      log_warning("oscar: upstream has no thresholds for ", language_,
                  "; those of its 'default' are taken. It has some for ", join(oscar_languages(), ", "));
    std::vector<std::string> off;
    if (rules_.stop_words.empty()) off.emplace_back("stop words (--stop-words)");
    if (rules_.flagged_words.empty()) off.emplace_back("flagged words (--flagged-words)");
    if (rules_.identifier == nullptr) off.emplace_back("language (--language-model)");
    if (rules_.scorer == nullptr) off.emplace_back("perplexity (--perplexity-model)");
    if (!off.empty()) log_info("oscar: filters that are off: ", join(off, ", "));
  }

  void add_threshold_rows(OptionTable& table) {
    const std::string own = "the language's";
    const auto share = [&](const char* name, std::optional<double>& target, const char* help) {
      table.add(name, target, help).minimum(0).maximum(1).default_text(own);
    };
    table.add("--least-words", least_words_, "drop documents of fewer words").minimum(0).default_text(own);
    table.add("--most-words", most_words_, "drop documents of more words").minimum(0).default_text(own);
    table.add("--longest-word", longest_word_, "take longer words out of the text").minimum(1).default_text(own);
    share("--most-character-repetition", most_character_repetition_, "share of the commonest stretches of characters");
    share("--most-word-repetition", most_word_repetition_, "share of stretches of words that occur more than once");
    share("--most-special", most_special_, "share of special characters");
    share("--least-stop-words", least_stop_words_, "share of stop words");
    share("--most-flagged-words", most_flagged_words_, "share of flagged words");
    share("--least-language-score", least_language_score_, "how sure the language must be");
    table.add("--most-perplexity", most_perplexity_, "drop documents of a higher one").minimum(0).default_text(own);
  }

  void take_thresholds() {
    const auto take = [](const auto& given, auto& value) {
      if (given) value = *given;
    };
    OscarParameters& parameters = rules_.parameters;
    take(least_words_, parameters.least_words);
    take(most_words_, parameters.most_words);
    if (longest_word_) parameters.removes_long_words = true;
    take(longest_word_, parameters.longest_word);
    take(most_character_repetition_, parameters.most_character_repetition);
    take(most_word_repetition_, parameters.most_word_repetition);
    take(most_special_, parameters.most_special);
    take(least_stop_words_, parameters.least_stop_words);
    take(most_flagged_words_, parameters.most_flagged_words);
    take(least_language_score_, parameters.least_language_score);
    take(most_perplexity_, parameters.most_perplexity);
  }

  std::string language_, stop_words_, flagged_words_, language_model_;
  std::optional<int64_t> least_words_, most_words_, longest_word_;
  std::optional<double> most_character_repetition_, most_word_repetition_, most_special_, least_stop_words_,
      most_flagged_words_, least_language_score_, most_perplexity_;
  PerplexityScorer::Files perplexity_{.model = "", .sentencepiece = "", .setting = ModelText::kBigScience};
  OscarRules rules_;
};

}  // namespace

std::unique_ptr<StepMaker> oscar_maker() { return std::make_unique<OscarMaker>(); }

}  // namespace espalier::curate
