#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "eval/internal/bloom_tasks.h"
#include "text/python_text.h"

namespace espalier::eval::internal {
namespace {

using text::python::capitalize;
using text::python::replace_all;
using text::python::strip;
using text::python::strip_right;

// Without "[header]" and other marks of WikiHow: what is in brackets, on one line.
std::string without_brackets(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const size_t open = text.find('[');
    const size_t end = open == std::string_view::npos ? open : text.find_first_of("]\n", open);
    if (end == std::string_view::npos) break;
    if (text[end] == '\n') {
      kept.append(text.substr(0, open + 1));
      text.remove_prefix(open + 1);
      continue;
    }
    kept.append(text.substr(0, open));
    text.remove_prefix(end + 1);
  }
  return kept.append(text);
}

}  // namespace

// One pass: of three blanks two are left.
std::string hellaswag_text(std::string_view text) {
  return replace_all(without_brackets(replace_all(strip(text), " [title]", ". ")), "  ", " ");
}

// What the pattern "[abcd] \) .*?, |e \) .*?$" finds, from its fifth character on, without ", " at the end.
std::vector<std::string> mathqa_choices(const std::string& options) {
  std::vector<std::string> choices;
  for (size_t at = 0; at + 4 <= options.size();) {
    const char letter = options[at];
    const bool begins = letter >= 'a' && letter <= 'e' && options.compare(at + 1, 3, " ) ") == 0;
    size_t end = std::string::npos;
    if (begins) {
      const size_t line_end = std::min(options.find('\n', at + 4), options.size());
      if (letter == 'e') {  // to the end, or to the line feed that ends the text
        if (line_end + 1 >= options.size()) end = line_end;
      } else {
        const size_t comma = options.find(", ", at + 4);
        if (comma != std::string::npos && comma < line_end) end = comma + 2;
      }
    }
    if (end == std::string::npos) {
      ++at;
      continue;
    }
    choices.emplace_back(strip_right(std::string_view(options).substr(at + 4, end - at - 4), " ,"));
    at = end;
  }
  return choices;
}

namespace {

std::string question_and_answer(const std::string& question) { return "Question: " + question + "\nAnswer:"; }

// The choice that a letter names; `letters` in the order of the choices.
size_t lettered(const Fields& document, const std::string& field, const std::string& letters, size_t num_choices) {
  const std::string letter(strip(document.text(field)));
  const size_t place = letter.size() == 1 ? letters.find(letter) : std::string::npos;
  if (place == std::string::npos) document.refuse(concat("field '", field, "' is '", letter, "', none of ", letters));
  if (place >= num_choices)
    document.refuse(concat("field '", field, "' is '", letter, "', but there are only ", num_choices, " choices"));
  return place;
}

std::vector<std::string> some_texts(const Fields& document, const std::string& field) {
  std::vector<std::string> texts = document.texts(field);
  if (texts.empty()) document.refuse(concat("field '", field, "' is empty"));
  return texts;
}

Question arc(const Fields& document) {
  const std::vector<std::string> choices = some_texts(document, "choices.text");
  // Some documents number their choices.
  const std::string key = document.text("answerKey");
  const bool is_number = key.size() == 1 && key[0] >= '1' && key[0] <= '5';
  return ask_choices(question_and_answer(document.text("question")), choices,
                     lettered(document, "answerKey", is_number ? "12345" : "ABCDE", choices.size()));
}

Question headqa(const Fields& document) {
  std::vector<std::string> choices;
  for (const Fields& answer : document.objects("answers")) choices.push_back(answer.text("atext"));
  const int64_t right = document.integer("ra", 1, static_cast<int64_t>(choices.size()));
  return ask_choices(question_and_answer(document.text("qtext")), choices, static_cast<size_t>(right - 1));
}

Question hellaswag(const Fields& document) {
  const std::string context = document.text("ctx_a") + " " + capitalize(document.text("ctx_b"));
  std::vector<std::string> choices;
  for (const std::string& ending : some_texts(document, "endings")) choices.push_back(hellaswag_text(ending));
  const int64_t right = document.integer("label", 0, static_cast<int64_t>(choices.size()) - 1);
  return ask_choices(hellaswag_text(document.text("activity_label") + ": " + context), choices,
                     static_cast<size_t>(right));
}

Question logiqa(const Fields& document) {
  const std::vector<std::string> choices = some_texts(document, "options");
  std::string context =
      "Passage: " + document.text("context") + "\nQuestion: " + document.text("question") + "\nChoices:\n";
  for (size_t i = 0; i < std::min<size_t>(choices.size(), 4); ++i)
    context += std::string(1, static_cast<char>('A' + i)) + ". " + choices[i] + "\n";
  return ask_choices(context + "Answer:", choices, lettered(document, "label", "abcd", choices.size()));
}

Question mathqa(const Fields& document) {
  const std::vector<std::string> choices = mathqa_choices(document.text("options"));
  if (choices.empty())
    document.refuse(
        concat("field 'options' is '", document.text("options"), "'; it should be 'a ) 20 , b ) 22.5 , ...'"));
  return ask_choices(question_and_answer(document.text("Problem")), choices,
                     lettered(document, "correct", "abcde", choices.size()));
}

Question openbookqa(const Fields& document) {
  const std::vector<std::string> choices = some_texts(document, "choices.text");
  return ask_choices(document.text("question_stem"), choices, lettered(document, "answerKey", "ABCD", choices.size()));
}

Question piqa(const Fields& document) {
  return ask_choices(question_and_answer(document.text("goal")), {document.text("sol1"), document.text("sol2")},
                     static_cast<size_t>(document.integer("label", 0, 1)));
}

Question prost(const Fields& document) {
  return ask_choices(document.text("context") + "\n" + question_and_answer(document.text("ex_question")),
                     {document.text("A"), document.text("B"), document.text("C"), document.text("D")},
                     static_cast<size_t>(document.integer("label", 0, 3)));
}

Question pubmedqa(const Fields& document) {
  return ask_choices("Abstract: " + join(document.texts("context.contexts"), "\n") + "\n" +
                         question_and_answer(document.text("question")),
                     {"yes", "no", "maybe"},
                     static_cast<size_t>(document.label("final_decision", {"yes", "no", "maybe"})));
}

Question sciq(const Fields& document) {
  const std::string context = document.text("support") + "\n" + question_and_answer(document.text("question"));
  return ask_choices(std::string(strip(context)),
                     {document.text("distractor1"), document.text("distractor2"), document.text("distractor3"),
                      document.text("correct_answer")},
                     3);
}

size_t place_of_gap(const Fields& document) {
  const size_t place = document.text("sentence").find('_');
  if (place == std::string::npos) document.refuse("field 'sentence' has no _ to be filled");
  return place;
}

// The same continuation after two contexts: what follows the gap, after what fills it.
Question winogrande(const Fields& document) {
  const std::string sentence = document.text("sentence");
  const size_t gap = place_of_gap(document);
  Question question;
  question.target = " " + std::string(strip(std::string_view(sentence).substr(gap + 1)));
  for (const char* option : {"option1", "option2"}) {
    question.choices.push_back(document.text(option));
    question.requests.push_back(
        {.context = sentence.substr(0, gap) + question.choices.back(), .continuation = question.target});
  }
  question.gold = static_cast<size_t>(document.integer("answer", 1, 2) - 1);
  return question;
}

}  // namespace

std::vector<Task> choice_tasks() {
  const std::vector<std::string> arc_fields = {"question", "choices.text", "answerKey"};
  return {
      {"arc_easy", 0, {"ai2_arc ARC-Easy", "test", 2376, arc_fields}, arc, acc_and_norm()},
      {"arc_challenge", 0, {"ai2_arc ARC-Challenge", "test", 1172, arc_fields}, arc, acc_and_norm()},
      {"headqa", 0, {"head_qa es", "test", 2742, {"qtext", "answers[].atext", "ra"}}, headqa, acc_and_norm()},
      {"hellaswag",
       0,
       {"hellaswag", "validation", 10042, {"activity_label", "ctx_a", "ctx_b", "endings", "label"}},
       hellaswag,
       acc_and_norm()},
      {"logiqa",
       0,
       {"EleutherAI/logiqa", "test", 651, {"context", "question", "options", "label"}},
       logiqa,
       acc_and_norm()},
      {"mathqa", 0, {"math_qa", "test", 2985, {"Problem", "options", "correct"}}, mathqa, acc_and_norm()},
      {"openbookqa",
       0,
       {"openbookqa main", "test", 500, {"question_stem", "choices.text", "answerKey"}},
       openbookqa,
       acc_and_norm()},
      {"piqa", 0, {"piqa", "validation", 1838, {"goal", "sol1", "sol2", "label"}}, piqa, acc_and_norm()},
      {"prost",
       0,
       {"corypaik/prost", "test", 18736, {"context", "ex_question", "A", "B", "C", "D", "label"}},
       prost,
       acc_and_norm()},
      {"pubmedqa",
       0,
       {"pubmed_qa pqa_labeled", "train", 1000, {"context.contexts", "question", "final_decision"}},
       pubmedqa,
       acc()},
      {"sciq",
       0,
       {"sciq", "test", 1000, {"support", "question", "distractor1", "distractor2", "distractor3", "correct_answer"}},
       sciq,
       acc_and_norm()},
      {"winogrande",
       0,
       {"winogrande winogrande_xl", "validation", 1267, {"sentence", "option1", "option2", "answer"}},
       winogrande,
       acc()},
  };
}

}  // namespace espalier::eval::internal
