#include "eval/answer_filters.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/format.h"
#include "eval/ignored_text.h"
#include "text/python_regex.h"
#include "text/python_text.h"

namespace espalier::eval {
namespace {

using text::python::num_characters;
using text::python::Regex;
using text::python::strip;

using Texts = std::vector<std::string>;
using Step = std::function<Texts(const Question&, Texts)>;

template <class Change>
Step each(Change change) {
  return [change](const Question&, Texts texts) {
    for (std::string& text : texts) text = change(text);
    return texts;
  };
}

// What the chosen match holds: of several groups the first that is not empty. Nothing where there is no match, or all
// groups are empty.
std::optional<std::string> choose(const Regex& regex, const std::string& text, bool takes_last) {
  const auto matches = regex.find_all(text);
  if (matches.empty()) return std::nullopt;
  const Texts& groups = takes_last ? matches.back() : matches.front();
  if (groups.size() == 1) return std::string(strip(groups[0]));
  for (const std::string& group : groups)
    if (!group.empty()) return std::string(strip(group));
  return std::nullopt;
}

// The most frequent text, of equals the one that came first.
Texts majority(const Question&, Texts texts) {
  std::map<std::string, int> counts;
  for (const std::string& text : texts) ++counts[text];
  const auto best = std::max_element(texts.begin(), texts.end(),
                                     [&](const std::string& a, const std::string& b) { return counts[a] < counts[b]; });
  return {*best};
}

// Choices by their letters: "(A)" for the first one. Where the expression finds nothing, the text of a choice is looked
// for, then a letter after a colon.
class ChoiceFinder {
 public:
  ChoiceFinder(std::shared_ptr<const Regex> regex, IgnoredText ignored, bool takes_last, std::string fallback,
               std::string place)
      : regex_(std::move(regex)),
        ignored_(std::move(ignored)),
        takes_last_(takes_last),
        fallback_(std::move(fallback)),
        place_(std::move(place)) {}

  Texts find(const Question& question, Texts texts) const {
    Texts escaped, letters;
    std::map<std::string, std::string> letter_of_text, letter_of_letter;
    char letter = 'A';
    for (const std::string& choice : question.field_choices) {
      const std::string plain = ignored_.remove(std::string(strip(choice)));
      const std::string named = concat("(", letter, ")");
      escaped.push_back(text::python::escape(plain));
      letters.emplace_back(1, letter);
      letter_of_text[plain] = letter_of_letter[letters.back()] = named;
      ++letter;
    }
    // Longer ones first: one may begin another.
    std::stable_sort(escaped.begin(), escaped.end(),
                     [](const std::string& a, const std::string& b) { return num_characters(a) > num_characters(b); });
    const Regex of_texts(join(escaped, "|"), place_), of_letters(concat(":[\\s]*(", join(letters, "|"), ")"), place_);
    for (std::string& text : texts) {
      std::string found = choose(*regex_, text, takes_last_).value_or("");
      if (found.empty()) found = translated(of_texts, ignored_.remove(text), letter_of_text);
      if (found.empty()) found = translated(of_letters, text, letter_of_letter);
      text = found.empty() ? fallback_ : found;
    }
    return texts;
  }

 private:
  std::string translated(const Regex& regex, const std::string& text,
                         const std::map<std::string, std::string>& names) const {
    const std::string found = choose(regex, text, takes_last_).value_or("");
    const auto name = found.empty() ? names.end() : names.find(found);
    return name == names.end() ? found : name->second;
  }

  std::shared_ptr<const Regex> regex_;
  IgnoredText ignored_;
  bool takes_last_;
  std::string fallback_, place_;
};

class FilterReader {
 public:
  FilterReader(const TaskFile& file, int64_t repeats, Problems& problems)
      : place_(file.place("filter_list") + ": filter_list"), repeats_(repeats), problems_(problems) {}

  std::optional<AnswerFilter> read(const Json& entry) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() || !entry.contains("filter") ||
        !entry["filter"].is_array() || entry["filter"].empty()) {
      problems_.add(place_, ": expected entries with a name and a list of filters");
      return std::nullopt;
    }
    AnswerFilter filter;
    filter.name = entry["name"].get<std::string>();
    std::vector<Step> steps;
    const size_t before = problems_.messages().size();
    for (size_t i = 0; i < entry["filter"].size(); ++i) {
      const Json& step = entry["filter"][i];
      const std::string name = step.is_object() ? step.value("function", "") : "";
      const bool is_last = i + 1 == entry["filter"].size();
      if (is_last != (name == "take_first"))
        refuse(filter.name, is_last ? "must end with take_first" : "take_first is supported only as the last filter");
      filter.needs_choices |= name == "multi_choice_regex";
      try {
        if (Step made = read_step(filter.name, name, step)) steps.push_back(std::move(made));
      } catch (const UserError& error) {
        problems_.add(error.what());
      }
    }
    if (problems_.messages().size() != before) return std::nullopt;
    filter.apply = [steps = std::move(steps)](const Question& question, Texts texts) {
      for (const Step& step : steps) texts = step(question, std::move(texts));
      return texts.at(0);
    };
    return filter;
  }

 private:
  template <class... Parts>
  void refuse(const std::string& filter, const Parts&... parts) {
    problems_.add(place_, ": ", filter, ": ", parts...);
  }

  void check_keys(const std::string& filter, const std::string& function, const Json& step,
                  std::set<std::string> known) {
    known.insert("function");
    for (const auto& [key, value] : step.items())
      if (!known.contains(key)) refuse(filter, function, ": the key '", key, "' is not supported");
  }

  Step read_step(const std::string& filter, const std::string& name, const Json& step) {
    static const std::map<std::string, Step> kPlain = {
        {"take_first", nullptr},
        {"remove_whitespace", each([](const std::string& text) { return std::string(strip(text)); })},
        {"lowercase", each([](const std::string& text) { return text::python::lowercase(text); })},
        {"uppercase", each([](const std::string& text) { return text::python::uppercase(text); })},
        {"majority_vote", majority}};
    if (const auto plain = kPlain.find(name); plain != kPlain.end()) {
      check_keys(filter, name, step, {});
      return plain->second;
    }
    if (name == "take_first_k") return first_k(filter, step);
    if (name == "regex" || name == "multi_choice_regex") return by_regex(filter, name, step);
    refuse(filter, "the filter '", name, "' is not supported; take_first, take_first_k, majority_vote, ",
           "remove_whitespace, lowercase, uppercase, regex and multi_choice_regex are");
    return nullptr;
  }

  Step first_k(const std::string& filter, const Json& step) {
    check_keys(filter, "take_first_k", step, {"k"});
    const Json k = step.value("k", Json());
    if (!k.is_number_integer() || k < 1 || k > repeats_) {
      refuse(filter, "take_first_k: k is ", k.dump(), ", and each document has ", repeats_, " answers");
      return nullptr;
    }
    return [count = k.get<size_t>()](const Question&, Texts texts) {
      texts.resize(std::min(count, texts.size()));
      return texts;
    };
  }

  Step by_regex(const std::string& filter, const std::string& name, const Json& step) {
    const bool finds_choices = name == "multi_choice_regex";
    std::set<std::string> keys = {"regex_pattern", "group_select", "fallback"};
    if (finds_choices) keys.insert({"ignore_case", "ignore_punctuation", "regexes_to_ignore"});
    check_keys(filter, name, step, keys);
    const Json pattern = step.value("regex_pattern", Json(R"(#### (\-?[0-9\.\,]+))")),
               select = step.value("group_select", Json(0)), fallback = step.value("fallback", Json("[invalid]"));
    if (!pattern.is_string()) refuse(filter, name, ": regex_pattern is not a text");
    if (!fallback.is_string()) refuse(filter, name, ": fallback is not a text");
    if (select != Json(0) && select != Json(-1))
      refuse(filter, name, ": group_select ", select.dump(),
             " is not supported; 0 (the first match) and -1 (the last) are");
    if (!pattern.is_string() || !fallback.is_string()) return nullptr;
    const auto regex = std::make_shared<const Regex>(pattern.get<std::string>(), place_);
    const bool takes_last = select == Json(-1);
    if (finds_choices) {
      const auto finder = std::make_shared<const ChoiceFinder>(
          regex, read_ignored_text(step, IgnoredText::Punctuation::kUnicode, concat(place_, ": ", filter), problems_),
          takes_last, fallback.get<std::string>(), place_);
      return [finder](const Question& question, Texts texts) { return finder->find(question, std::move(texts)); };
    }
    return each([=, otherwise = fallback.get<std::string>()](const std::string& text) {
      return choose(*regex, text, takes_last).value_or(otherwise);
    });
  }

  std::string place_;
  int64_t repeats_;
  Problems& problems_;
};

}  // namespace

std::vector<AnswerFilter> read_answer_filters(const TaskFile& file, int64_t repeats, Problems& problems) {
  const Json list = file.config.value("filter_list", Json());
  if (list.is_null()) return {{"none", [](const Question&, Texts texts) { return texts.at(0); }}};
  std::vector<AnswerFilter> filters;
  FilterReader reader(file, repeats, problems);
  for (const Json& entry : list.is_array() ? list : Json::array({list}))
    if (std::optional<AnswerFilter> filter = reader.read(entry)) filters.push_back(std::move(*filter));
  return filters;
}

}  // namespace espalier::eval
