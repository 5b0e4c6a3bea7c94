#include <algorithm>
#include <set>

#include "base/format.h"
#include "data/python_random.h"
#include "eval/internal/lm_eval_rules.h"
#include "text/python_literal.h"
#include "text/python_text.h"

namespace espalier::eval {
namespace {

using text::python::count_fields;
using text::python::python_repr;
using text::python::python_str;
using text::python::strip_left;
using text::python::strip_right;

constexpr uint64_t kSeedOfExamples = 1234;
constexpr int64_t kNoChoice = -100;  // a gold that is none of the choices

bool begins_with_blank(std::string_view text) { return strip_left(text).size() != text.size(); }
bool ends_with_blank(std::string_view text) { return strip_right(text).size() != text.size(); }

// What is between two texts: nothing where one is empty, or where there is a blank already.
std::string delimiter_of(const std::string& first, const std::string& second, const std::string& delimiter) {
  if (first.empty() || second.empty() || ends_with_blank(first) || begins_with_blank(second)) return "";
  return delimiter;
}

bool is_index(const Json& value) { return value.is_number_integer() || value.is_boolean(); }
int64_t index_of(const Json& value) { return value.is_boolean() ? value.get<bool>() : value.get<int64_t>(); }

std::string text_of(const Json& value, const char* key, const Fields& document) {
  if (!value.is_string())
    document.refuse(concat(key, " makes ", python_repr(value).substr(0, 60), ", which is not a text"));
  return value.get<std::string>();
}

std::vector<std::string> choices_of(const TurnRules& rules, const Fields& document) {
  const Json made = rules.choice->of(document);
  if (!made.is_array() || made.empty())
    document.refuse(
        concat("doc_to_choice makes ", python_repr(made).substr(0, 60), ", which is not a list of choices"));
  std::vector<std::string> choices;
  for (const Json& choice : made) choices.push_back(text_of(choice, "doc_to_choice", document));
  return choices;
}

std::string choice_at(const std::vector<std::string>& choices, int64_t index, const Fields& document) {
  const auto size = static_cast<int64_t>(choices.size());
  if (index < -size || index >= size) document.refuse(concat("the choice ", index, " is wanted, but there are ", size));
  return choices[static_cast<size_t>(index < 0 ? index + size : index)];
}

class LmEvalPrompter {
 public:
  LmEvalPrompter(const LmEvalTask& task, const std::vector<Document>& examples)
      : task_(task), rules_(*task.rules), random_(kSeedOfExamples) {
    for (const Document& example : examples) examples_.push_back(&example.content);
    for (const Json& sample : rules_.samples) examples_.push_back(&sample);
  }

  Question ask(const Fields& document) {
    Question question;
    const Json target = rules_.tested.target->of(document);
    question.target = python_str(target);
    switch (rules_.output) {
      case OutputKind::kRolling: ask_rolling(document, target, question); break;
      case OutputKind::kLogLikelihood:
        question.requests = {
            {.context = context(document, text_of(rules_.tested.text->of(document), "doc_to_text", document)),
             .continuation = text_of(target, "doc_to_target", document)}};
        break;
      case OutputKind::kMultipleChoice: ask_choices(document, target, question); break;
      case OutputKind::kGenerate: ask_text(document, target, question); break;
    }
    return question;
  }

 private:
  void ask_rolling(const Fields& document, const Json& target, Question& question) const {
    const std::string text = text_of(target, "doc_to_target", document);
    question.requests = {{.kind = RequestKind::kRolling, .continuation = text}};
    const Json weights =
        rules_.weights ? rules_.weights(document) : Json{{"words", count_fields(text)}, {"bytes", text.size()}};
    question.reference = weights["words"].get<double>();
    question.bytes = weights["bytes"].get<double>();
  }

  // A text that is the number of a choice: the choices are what comes before, and the target follows each.
  void ask_choices(const Fields& document, const Json& target, Question& question) {
    question.choices = choices_of(rules_.tested, document);
    const Json text = rules_.tested.text->of(document);
    const std::string& delimiter = rules_.tested.target_delimiter;
    const bool has_contexts = is_index(text);
    if (has_contexts) {
      const std::string continuation = delimiter + text_of(target, "doc_to_target", document);
      const std::string before = examples_before(document);
      for (const std::string& choice : question.choices)
        question.requests.push_back(
            {.context = before + with_prefix(document, choice, ""), .continuation = continuation});
    } else {
      const std::string before = context(document, text_of(text, "doc_to_text", document));
      for (const std::string& choice : question.choices)
        question.requests.push_back({.context = before, .continuation = delimiter + choice});
    }
    if (rules_.has_mutual_info)
      for (const std::string& choice : question.choices)
        question.requests.push_back({.context = "", .continuation = delimiter + choice});
    set_golds(document, has_contexts ? text : target, question);
    check_kind(document, has_contexts, target.is_array());
    check_classes(document, question);
  }

  void ask_text(const Fields& document, const Json& target, Question& question) {
    const Request request = {
        .kind = RequestKind::kGenerate,
        .context = context(document, text_of(rules_.tested.text->of(document), "doc_to_text", document)),
        .generation = task_.task.generation};
    question.requests.assign(static_cast<size_t>(task_.task.repeats), request);
    if (rules_.needs_choices) question.field_choices = document.texts("choices");
    if (rules_.tested.choice) {
      if (!is_index(target))
        document.refuse(
            concat("doc_to_target makes ", python_repr(target).substr(0, 60), ", which does not name a choice"));
      question.targets = {choice_at(choices_of(rules_.tested, document), index_of(target), document)};
    } else if (target.is_array()) {
      for (const Json& one : target) question.targets.push_back(text_of(one, "doc_to_target", document));
    } else {
      question.targets = {python_str(target)};
    }
    check_kind(document, false, target.is_array());
    for (const Metric& metric : task_.task.metrics)
      if (metric.aggregation.form == ItemForm::kTexts && target.is_array())
        document.refuse(concat("the metric ", metric.name, " needs one target, not a list"));
  }

  void set_golds(const Fields& document, const Json& gold, Question& question) const {
    const auto size = static_cast<int64_t>(question.choices.size());
    const auto add = [&](const Json& one) {
      if (!is_index(one))
        document.refuse(
            concat("doc_to_target makes ", python_repr(one).substr(0, 60), ", which does not name a choice"));
      question.golds.push_back(index_of(one) < size ? index_of(one) : kNoChoice);
    };
    if (gold.is_array())
      for (const Json& one : gold) add(one);
    else if (gold.is_string()) {
      const auto place = std::find(question.choices.begin(), question.choices.end(), gold.get<std::string>());
      question.golds = {place == question.choices.end() ? kNoChoice : place - question.choices.begin()};
    } else
      add(gold);
  }

  // The harness takes the first document's kind for that of all, and fails where another has another.
  void check_kind(const Fields& document, bool has_contexts, bool has_golds) {
    if (!is_first_ && (has_contexts != has_contexts_ || has_golds != has_golds_))
      document.refuse("the text or the target is of another kind than that of the first document");
    is_first_ = false;
    has_contexts_ = has_contexts, has_golds_ = has_golds;
  }
  void check_classes(const Fields& document, const Question& question) const {
    for (const Metric& metric : task_.task.metrics)
      if (metric.aggregation.form == ItemForm::kRightAndSaid &&
          (question.choices.size() != 2 || question.golds.size() != 1))
        document.refuse(concat("the metric ", metric.name, " needs two choices, one of which is right"));
  }

  std::string with_prefix(const Fields& document, const std::string& text, const std::string& delimiter) const {
    if (!rules_.tested.prefix) return text;
    const std::string prefix = text_of(rules_.tested.prefix->of(document), "gen_prefix", document);
    return text + delimiter_of(text, prefix, delimiter) + prefix;
  }

  std::string context(const Fields& document, const std::string& text) {
    return examples_before(document) + with_prefix(document, text, rules_.tested.target_delimiter);
  }

  std::string examples_before(const Fields& document) {
    std::string before = rules_.description ? text_of(rules_.description->of(document), "description", document) : "";
    if (task_.num_fewshot == 0) return before;
    for (const Json* example : draw(document)) before += turn(Fields(*example, "an example of " + task_.task.name));
    return before;
  }

  std::vector<const Json*> draw(const Fields& document) {
    const auto wanted = static_cast<size_t>(task_.num_fewshot);
    std::vector<const Json*> others;
    std::copy_if(examples_.begin(), examples_.end(), std::back_inserter(others),
                 [&](const Json* example) { return !rules_.removes_tested || *example != document.json(); });
    const size_t spare = rules_.removes_tested && !rules_.takes_first ? 1 : 0;
    if (others.size() < wanted || examples_.size() < wanted + spare)
      document.refuse(concat(wanted, " examples are wanted, but there are ", others.size()));
    if (rules_.takes_first) return {others.begin(), others.begin() + static_cast<std::ptrdiff_t>(wanted)};
    std::vector<const Json*> drawn;
    for (const size_t i : random_.sample(examples_.size(), wanted + spare))
      if (!rules_.removes_tested || *examples_[i] != document.json()) drawn.push_back(examples_[i]);
    if (drawn.size() < wanted) {  // the tested document occurs several times
      drawn.clear();
      for (const size_t i : random_.sample(others.size(), wanted)) drawn.push_back(others[i]);
    }
    drawn.resize(wanted);
    return drawn;
  }

  // Text and answer, as one example has them.
  std::string turn(const Fields& example) const {
    const TurnRules& rules = rules_.example;
    const Json text = rules.text->of(example), target = rules.target->of(example);
    std::vector<std::string> choices;
    if (rules.choice) choices = choices_of(rules, example);
    const bool has_contexts = is_index(text) && rules.choice;
    const std::string asked =
        has_contexts ? choice_at(choices, index_of(text), example) : text_of(text, "doc_to_text", example);
    const std::string prefix = rules.prefix ? text_of(rules.prefix->of(example), "gen_prefix", example) : "";
    const std::string between =
        prefix.empty() ? rules.target_delimiter : delimiter_of(asked, prefix, rules.target_delimiter);
    if (target == Json("")) return prefix.empty() ? asked : asked + between + prefix;
    const Json first = target.is_array() && !target.empty() ? target[0] : target;
    const std::string answer = !has_contexts && rules.choice && is_index(target)
                                   ? choice_at(choices, index_of(target), example)
                                   : text_of(first, "doc_to_target", example);
    return asked + between + prefix + delimiter_of(prefix, answer, " ") + answer + rules.fewshot_delimiter;
  }

  const LmEvalTask& task_;
  const LmEvalRules& rules_;
  std::vector<const Json*> examples_;
  data::PythonRandom random_;
  bool is_first_ = true, has_contexts_ = false, has_golds_ = false;
};

void process(const DocumentFunction& function, std::vector<Document>& documents, Problems& problems) {
  if (!function) return;
  for (Document& document : documents) {
    try {
      document.content = function(Fields(document.content, document.place));
    } catch (const UserError& error) {
      problems.add(error.what());
      if (problems.messages().size() == kMostProblems) return;
    }
  }
}

}  // namespace

void type_columns(std::vector<Document>& documents) {
  if (documents.empty()) return;
  std::set<std::string> numbers;
  for (const auto& [name, value] : documents[0].content.items())
    if (std::all_of(documents.begin(), documents.end(), [&key = name](const Document& document) {
          const std::string cell = document.content.value(key, "");
          const std::string digits = cell.starts_with('-') ? cell.substr(1) : cell;
          return !digits.empty() && digits.size() <= 18 && digits.find_first_not_of("0123456789") == std::string::npos;
        }))
      numbers.insert(name);
  for (Document& document : documents)
    for (const std::string& name : numbers)
      document.content[name] = int64_t{std::stoll(document.content[name].get<std::string>())};
}

PreparedTask prepare_lm_eval(const LmEvalTask& task, std::vector<Document> documents, std::vector<Document> examples,
                             std::optional<int64_t> limit) {
  Problems problems;
  const bool shares = task.examples_are_tested && task.num_fewshot > 0;
  if (shares) examples = documents;
  process(task.rules->tested.process, documents, problems);
  process(task.rules->example.process, examples, problems);
  problems.raise(ExitCode::kBadData);
  PreparedTask prepared = {task.task, {}, {}, static_cast<int64_t>(documents.size())};
  LmEvalPrompter prompter(task, examples);
  if (limit && *limit < prepared.num_available) documents.resize(static_cast<size_t>(*limit));
  for (const Document& document : documents) {
    try {
      prepared.questions.push_back(prompter.ask(Fields(document.content, document.place)));
    } catch (const UserError& error) {
      problems.add("task ", task.task.name, ": ", error.what());
      if (problems.messages().size() == kMostProblems) break;
    }
  }
  problems.raise(ExitCode::kBadData);
  prepared.documents = std::move(documents);
  return prepared;
}

}  // namespace espalier::eval
