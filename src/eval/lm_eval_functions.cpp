#include "eval/lm_eval_functions.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "eval/detokenizers.h"
#include "eval/internal/bloom_tasks.h"
#include "text/python_literal.h"
#include "text/python_text.h"

namespace espalier::eval {
namespace {

using text::python::capitalize;
using text::python::count_fields;
using text::python::parse_literal;
using text::python::slice;
using text::python::strip;

size_t class_of(const Fields& fields, const std::string& field, const std::string& letters) {
  const std::string letter(strip(fields.text(field)));
  const size_t place = letter.size() == 1 ? letters.find(letter) : std::string::npos;
  if (place == std::string::npos) fields.refuse(concat("field '", field, "' is '", letter, "', none of ", letters));
  return place;
}

std::string small_choice(const Fields& document, const char* field) {
  return " " + internal::begun_small(document, field);
}

Json copa_text(const Fields& document) {
  const bool is_effect = document.label("question", {"cause", "effect"}) == 1;
  return std::string(slice(strip(document.text("premise")), 0, -1)) + (is_effect ? " therefore" : " because");
}
Json copa_target(const Fields& document) {
  return small_choice(document, document.integer("label") == 0 ? "choice1" : "choice2");
}
Json copa_choice(const Fields& document) {
  return {small_choice(document, "choice1"), small_choice(document, "choice2")};
}

Json hellaswag_document(const Fields& document) {
  Json processed = document.json();
  const std::string context = document.text("ctx_a") + " " + capitalize(document.text("ctx_b"));
  processed["query"] = internal::hellaswag_text(document.text("activity_label") + ": " + context);
  processed["choices"] = Json::array();
  for (const std::string& ending : document.texts("endings"))
    processed["choices"].push_back(internal::hellaswag_text(ending));
  processed["gold"] = document.integer("label");
  return processed;
}

Json logiqa_text(const Fields& document) {
  std::string text =
      "Passage: " + document.text("context") + "\nQuestion: " + document.text("question") + "\nChoices:\n";
  const std::vector<std::string> options = document.texts("options");
  for (size_t i = 0; i < std::min<size_t>(options.size(), 4); ++i)
    text += std::string(1, static_cast<char>('A' + i)) + ". " + options[i] + "\n";
  return text + "Answer:";
}
Json logiqa_target(const Fields& document) { return class_of(document, "label", "abcd"); }

Json mathqa_choice(const Fields& document) { return internal::mathqa_choices(document.text("options")); }

Json pubmedqa_text(const Fields& document) {
  return concat("Abstract: ", join(document.texts("CONTEXTS"), "\n"), "\nQuestion: ", document.text("QUESTION"),
                "\nAnswer:");
}

// The questions of an article, which are in a string as Python writes them.
class RaceProblems {
 public:
  explicit RaceProblems(const Fields& document) : place_(document), json_(parse_literal(document.text("problems"))) {
    if (!json_.is_array() || json_.empty()) document.refuse("field 'problems' is not a list of questions");
  }
  size_t size() const { return json_.size(); }
  Fields at(size_t i) const {
    if (!json_[i].is_object()) place_.refuse("field 'problems' is not a list of questions");
    return Fields(json_[i], concat("question ", i + 1));
  }
  Fields last() const { return at(size() - 1); }

 private:
  const Fields& place_;
  Json json_;
};

std::vector<std::string> race_options(const Fields& problem) {
  std::vector<std::string> options = problem.texts("options");
  if (options.size() < 4) problem.refuse(concat("field 'options' has ", options.size(), " texts, not 4"));
  options.resize(4);
  return options;
}

Json race_text(const Fields& document) {
  const RaceProblems problems(document);
  std::string text = "Article: " + document.text("article") + "\n\n";
  for (size_t i = 0; i + 1 < problems.size(); ++i) {
    const Fields problem = problems.at(i);
    const std::string question = problem.text("question");
    const std::string answer = race_options(problem)[class_of(problem, "answer", "ABCD")];
    if (question.ends_with("  _  ."))
      text += question.substr(0, question.size() - 5) + answer + "\n";
    else
      text += "Question: " + question + "\nAnswer: " + answer + "\n";
  }
  return text + problems.last().text("question");
}
Json race_target(const Fields& document) { return class_of(RaceProblems(document).last(), "answer", "ABCD"); }
Json race_choice(const Fields& document) { return race_options(RaceProblems(document).last()); }

// Sorted, without those that begin like one that is kept.
Json webqs_choice(const Fields& document) {
  std::vector<std::string> answers = document.texts("answers");
  if (answers.empty()) document.refuse("field 'answers' is empty");
  std::sort(answers.begin(), answers.end());
  Json kept = {answers[0]};
  for (const std::string& answer : answers)
    if (!answer.starts_with(kept.back().get<std::string>())) kept.push_back(answer);
  return kept;
}
Json webqs_target(const Fields& document) {
  Json all = Json::array();
  for (size_t i = 0; i < webqs_choice(document).size(); ++i) all.push_back(i);
  return all;
}

size_t gap_of(const Fields& document) {
  const size_t gap = document.text("sentence").find('_');
  if (gap == std::string::npos) document.refuse("field 'sentence' has no _");
  return gap;
}
Json winogrande_text(const Fields& document) { return class_of(document, "answer", "12"); }
Json winogrande_target(const Fields& document) {
  const std::string sentence = document.text("sentence");
  return std::string(strip(std::string_view(sentence).substr(gap_of(document) + 1)));
}
Json winogrande_choice(const Fields& document) {
  const std::string before = document.text("sentence").substr(0, gap_of(document));
  return {before + document.text("option1"), before + document.text("option2")};
}

Json wsc_text(const Fields& document) { return internal::wsc_context(document); }

Json wikitext_target(const Fields& document) { return detokenize_wikitext(document.text("page")); }
// What the perplexities are over: of the page before it is detokenized.
Json wikitext_weights(const Fields& document) {
  const std::string page = document.text("page");
  return {{"words", count_fields(page)}, {"bytes", page.size()}};
}

const std::map<std::string, DocumentFunction>& functions() {
  static const std::map<std::string, DocumentFunction> all = {
      {"copa/utils.doc_to_text", copa_text},
      {"copa/utils.doc_to_target", copa_target},
      {"copa/utils.doc_to_choice", copa_choice},
      {"hellaswag/utils.process_docs", hellaswag_document},
      {"logiqa/utils_logiqa.doc_to_text", logiqa_text},
      {"logiqa/utils_logiqa.doc_to_target", logiqa_target},
      {"mathqa/utils.doc_to_choice", mathqa_choice},
      {"pubmedqa/preprocess_pubmedqa.doc_to_text", pubmedqa_text},
      {"race/preprocess_race.doc_to_text", race_text},
      {"race/preprocess_race.doc_to_target", race_target},
      {"race/preprocess_race.doc_to_choice", race_choice},
      {"webqs/utils.doc_to_choice", webqs_choice},
      {"webqs/utils.doc_to_target", webqs_target},
      {"winogrande/preprocess_winogrande.doc_to_text", winogrande_text},
      {"winogrande/preprocess_winogrande.doc_to_target", winogrande_target},
      {"winogrande/preprocess_winogrande.doc_to_choice", winogrande_choice},
      {"wsc/preprocess_wsc.default_doc_to_text", wsc_text},
      {"wikitext/preprocess_wikitext.wikitext_detokenizer", wikitext_target},
      {"wikitext/preprocess_wikitext.process_results", wikitext_weights},
  };
  return all;
}

}  // namespace

DocumentFunction find_function(const std::filesystem::path& folder, const std::string& reference) {
  const auto found = functions().find(folder.filename().string() + "/" + reference);
  return found == functions().end() ? DocumentFunction() : found->second;
}

}  // namespace espalier::eval
