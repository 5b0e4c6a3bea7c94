#include "base/error.h"
#include "eval/detokenizers.h"
#include "eval/internal/bloom_tasks.h"
#include "eval/scores.h"
#include "text/python_text.h"

namespace espalier::eval::internal {

using text::python::lowercase;
using text::python::num_characters;
using text::python::slice;
using text::python::split_words;
using text::python::strip;

std::string begun_small(const Fields& document, const std::string& field) {
  const std::string text = document.text(field);
  if (text.empty()) document.refuse("field '" + field + "' is empty");
  const std::string_view first = slice(text, 0, 1);
  return lowercase(first) + text.substr(first.size());
}

// The pronoun is placed by the number of its word, while what follows is cut out of the text by characters.
std::string wsc_context(const Fields& document) {
  const std::string text = document.text("text"), pronoun = document.text("span2_text");
  const std::vector<std::string_view> words = split_words(text);
  std::string before;
  for (size_t i = 0; i < std::min(words.size(), static_cast<size_t>(document.integer("span2_index"))); ++i)
    before.append(i == 0 ? "" : " ").append(words[i]);
  const std::string_view after = slice(text, num_characters(before) + num_characters(pronoun) + 1);
  const std::string passage = detokenize_general(before + " *" + pronoun + "*" + std::string(after));
  return "Passage: " + passage + "\nQuestion: In the passage above, does the pronoun \"*" + pronoun +
         "*\" refer to \"*" + document.text("span1_text") + "*\"?\nAnswer:";
}

namespace {

// "yes" and "no", where the label is 1 for yes.
Question ask_yes_or_no(const std::string& context, const Fields& document) {
  return ask_choices(context, {"yes", "no"}, document.label("label", {"False", "True"}) == 1 ? 0 : 1);
}

Question boolq(const Fields& document) {
  return ask_yes_or_no(document.text("passage") + "\nQuestion: " + document.text("question") + "?\nAnswer:", document);
}

Question copa(const Fields& document) {
  const bool is_effect = document.label("question", {"cause", "effect"}) == 1;
  const std::string premise(slice(strip(document.text("premise")), 0, -1));
  return ask_choices(premise + (is_effect ? " therefore" : " because"),
                     {begun_small(document, "choice1"), begun_small(document, "choice2")},
                     static_cast<size_t>(document.label("label", {"choice1", "choice2"})));
}

// A document is one answer; the question that it belongs to is right when all of its answers are predicted right.
Question multirc(const Fields& document) {
  const std::string context = document.text("paragraph") + "\nQuestion: " + document.text("question") + "\nAnswer:";
  const std::string answer = document.text("answer") + "\nIs the answer correct? ";
  const bool is_right = document.label("label", {"False", "True"}) == 1;
  Question question = ask_choices(context, {answer + "yes", answer + "no"}, is_right ? 0 : 1);
  question.group = std::to_string(document.integer("idx.paragraph"));
  question.member = std::to_string(document.integer("idx.question"));
  return question;
}

Question wic(const Fields& document) {
  const std::string first = document.text("sentence1");
  const std::string word(slice(first, document.integer("start1"), document.integer("end1")));
  return ask_yes_or_no("Sentence 1: " + first + "\nSentence 2: " + document.text("sentence2") +
                           "\nQuestion: Is the word '" + word +
                           "' used in the same way in the two sentences above?\nAnswer:",
                       document);
}

Question wsc(const Fields& document) { return ask_yes_or_no(wsc_context(document), document); }

}  // namespace

std::vector<Task> superglue_tasks() {
  return {
      {"boolq", 1, {"super_glue boolq", "validation", 3270, {"passage", "question", "label"}}, boolq, acc_of_two()},
      {"copa",
       0,
       {"super_glue copa", "validation", 100, {"premise", "choice1", "choice2", "question", "label"}},
       copa,
       acc()},
      {"multirc",
       1,
       {"super_glue multirc",
        "validation",
        4848,
        {"paragraph", "question", "answer", "label", "idx.paragraph", "idx.question"}},
       multirc,
       {{"acc", true, judge_first_of_two, all_answers()}},
       nullptr,
       false,
       "a question's answers would be torn apart"},
      {"wic",
       0,
       {"super_glue wic", "validation", 638, {"sentence1", "sentence2", "start1", "end1", "label"}},
       wic,
       acc_of_two()},
      {"wsc",
       0,
       {"super_glue wsc.fixed", "validation", 104, {"text", "span1_text", "span2_text", "span2_index", "label"}},
       wsc,
       acc_of_two()},
  };
}

}  // namespace espalier::eval::internal
