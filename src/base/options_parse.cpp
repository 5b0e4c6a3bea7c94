// Reading of command lines, and the checks that words of flags and of recipes have in common.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "base/file.h"
#include "base/format.h"
#include "base/literal.h"
#include "base/log.h"
#include "base/options.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kCommandLine = "command line";

// Python's argparse takes "-3" and "-0.5" for values, "-1e-8" for an option.
bool is_negative_number(const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const size_t dot = word.find('.');
  if (word.find_first_not_of("0123456789.", 1) != std::string::npos) return false;
  return dot == std::string::npos || (word.find('.', dot + 1) == std::string::npos && dot + 1 < word.size());
}

std::string option_part(const std::string& word) { return word.substr(0, word.find('=')); }

std::string quoted_word(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_of(" \t\n\"'") == std::string::npos;
  return plain ? word : "'" + word + "'";
}

std::string did_you_mean(const Words& names) {
  if (names.empty()) return "";
  std::string text = "; did you mean " + names.front();
  for (size_t i = 1; i < names.size(); ++i) text += (i + 1 < names.size() ? ", " : " or ") + names[i];
  return text + "?";
}

std::string limit_text(double limit) {
  const bool is_integer = limit == std::floor(limit) && std::abs(limit) < 1e15;
  return is_integer ? std::to_string(static_cast<int64_t>(limit)) : format_shortest(limit);
}

std::string integer_problem(const std::string& word) {
  const std::optional<double> number = parse_python_float(word);
  if (number && *number == std::floor(*number) && std::abs(*number) < 9e18)
    return concat("is not an integer; write ", static_cast<int64_t>(*number));
  return "is not an integer";
}

}  // namespace

struct OptionTable::Reading {
  const Words& arguments;
  Problems& problems;
  size_t at = 0;
  Words words;            // those that belong to no option
  std::string last_flag;  // a word after it was perhaps meant as its value
};

bool OptionTable::parse(const std::vector<std::string>& arguments) {
  Problems problems;
  const bool go_on = parse(arguments, problems);
  problems.raise();
  return go_on;
}

bool OptionTable::parse(const std::vector<std::string>& arguments, Problems& problems) {
  if (print_help_if_asked(arguments)) return false;
  if (allow_recipes_) read_recipes(arguments, problems);
  Reading reading{arguments, problems, 0, {}, ""};
  bool only_words = false;
  while (reading.at < arguments.size()) {
    const std::string& word = arguments[reading.at++];
    if (!only_words && word == "--") {
      only_words = true;
    } else if (!only_words && is_option_word(word)) {
      read_option(reading, word);
    } else if (!positional_ && !reading.last_flag.empty()) {
      problems.add("unexpected word ", quoted_word(word), ": ", reading.last_flag, " takes no value");
    } else if (!positional_) {
      problems.add("unexpected word ", quoted_word(word), ": options begin with --");
    } else {
      reading.words.push_back(word);
    }
  }
  if (positional_) read_positionals(reading.words, problems);
  finish(problems);
  return true;
}

bool OptionTable::is_option_word(const std::string& word) const {
  if (word.size() < 2 || word[0] != '-' || word == "--" || is_negative_number(word)) return false;
  return word.find(' ') == std::string::npos || find_row(option_part(word), true, nullptr) != nullptr;
}

void OptionTable::read_option(Reading& reading, const std::string& word) {
  const size_t equals = word.find('=');
  const std::string name = option_part(word);
  reading.last_flag.clear();
  const auto next_is_value = [&] {
    return reading.at < reading.arguments.size() && reading.arguments[reading.at] != "--" &&
           !is_option_word(reading.arguments[reading.at]);
  };
  Words ambiguous;
  Option* option = find_row(name, !allow_prefixes_, &ambiguous);
  if (option == nullptr) {
    if (ambiguous.empty()) {
      reading.problems.add("unknown option ", name, suggestion(name, /*as_key=*/false));
    } else {
      reading.problems.add("option ", name, " is the beginning of ", join(ambiguous, ", "),
                           "; write one of them in full");
    }
    while (next_is_value()) ++reading.at;
    return;
  }
  Words words;
  if (equals != std::string::npos) {
    words.push_back(word.substr(equals + 1));
    if (option->is_flag() && words[0] != "true" && words[0] != "false") {
      reading.problems.add(option->name(), " takes no value but =true or =false, found ", quoted_word(words[0]));
      return;
    }
  } else if (option->is_flag()) {
    words.push_back("true");
    reading.last_flag = option->name();
  } else {
    while (next_is_value() && (option->is_list() || words.empty())) words.push_back(reading.arguments[reading.at++]);
    if (words.empty() && !option->is_list()) {
      reading.problems.add(option->name(), " expects a value (a negative one in the form ", option->name(), "=-1e-8)");
      return;
    }
  }
  const bool is_recipe = allow_recipes_ && option->name() == "--recipe";
  if (!is_recipe) assign(*option, words, kCommandLine, reading.problems);  // recipes were read before
}

void OptionTable::read_recipes(const std::vector<std::string>& arguments, Problems& problems) {
  const Option* recipe = find("--recipe");
  Words files;
  bool taking = false;
  for (const std::string& word : arguments) {
    if (word == "--") break;
    if (!is_option_word(word)) {
      if (taking) files.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const bool is_recipe = find_row(option_part(word), true, nullptr) == recipe;
    if (is_recipe && equals != std::string::npos) files.push_back(word.substr(equals + 1));
    taking = is_recipe && equals == std::string::npos;
  }
  for (const std::string& file : files) {
    try {
      parse_toml(read_file(file), file, problems);
    } catch (const UserError& error) {
      problems.add("--recipe: ", error.what());
    }
  }
  recipes_ = files;
}

void OptionTable::read_positionals(const std::vector<std::string>& words, Problems& problems) {
  const auto amount = [this] {
    if (positional_->minimum == positional_->maximum) return concat(positional_->minimum);
    if (positional_->maximum == SIZE_MAX) return concat("at least ", positional_->minimum);
    return concat(positional_->minimum, " to ", positional_->maximum);
  };
  if (words.size() < positional_->minimum || words.size() > positional_->maximum)
    problems.add("expected ", amount(), " ", positional_->value_name, " (", positional_->help, "), found ",
                 words.size(), words.empty() ? "" : ": ", join(words, " "));
  *positional_->target = words;
}

void OptionTable::assign(Option& option, const Words& words, const std::string& source, Problems& problems) {
  option.given_ = true;
  option.source_ = source;
  const bool is_off = option.is_flag() && words == Words{"false"};
  if (option.effect_ == OptionEffect::kRefused && !is_off) {
    problems.add(option.name(), " (", source, ") is not supported: ", option.effect_reason_);
    return;
  }
  if (option.count_ && words.size() != *option.count_) {
    problems.add(option.name(), " (", source, ") takes ", *option.count_, " values, found ", words.size());
    return;
  }
  bool good = true;
  const auto refuse = [&](const std::string& word, const std::string& reason) {
    problems.add(option.name(), " ", quoted_word(word), " (", source, ") ", reason);
    good = false;
  };
  for (const std::string& word : words) {
    std::optional<double> number;
    if (option.kind_ == OptionKind::kInteger) {
      const std::optional<int64_t> integer = parse_python_int(word);
      if (integer) number = static_cast<double>(*integer);
      if (!integer) refuse(word, integer_problem(word));
    } else if (option.kind_ == OptionKind::kNumber) {
      number = parse_python_float(word);
      if (!number) refuse(word, "is not a number");
    }
    if (number && !std::isfinite(*number)) {
      refuse(word, "is not a finite number");
      continue;
    }
    if (number && option.minimum_ && !(*number >= *option.minimum_))
      refuse(word, concat("is below the smallest value, ", limit_text(*option.minimum_)));
    if (number && option.maximum_ && !(*number <= *option.maximum_))
      refuse(word, concat("is above the largest value, ", limit_text(*option.maximum_)));
    const bool is_choice = option.choices_.empty() ||
                           std::find(option.choices_.begin(), option.choices_.end(), word) != option.choices_.end();
    auto refused = option.refused_values_.find(word);
    if (refused == option.refused_values_.end() && !is_choice) refused = option.refused_values_.find("*");
    if (refused != option.refused_values_.end())
      refuse(word, "is not supported: " + refused->second);
    else if (!is_choice)
      refuse(word, "is not one of " + join(option.choices_, ", ") + did_you_mean(nearest_names(word, option.choices_)));
  }
  if (good) option.set_(words);
}

void OptionTable::set(const std::string& name, const std::string& word, const std::string& source, Problems& problems) {
  Option* option = find_row(name, /*exact=*/true, nullptr);
  ESPALIER_CHECK(option != nullptr, name);
  assign(*option, {word}, source, problems);
}

void OptionTable::note(const Option& option) {
  warn_once(concat(option.name(), " (", option.source(), ") has no effect: ", option.effect_reason_));
}

void OptionTable::finish(Problems& problems) {
  for (const auto& option : options_) {
    if (option->required_ && (!option->given_ || (option->is_list_ && option->values().empty())))
      problems.add(option->name(), " is required: ", option->help());
    if (option->given_ && option->effect_ == OptionEffect::kNoEffect && say_notes_) note(*option);
  }
}

std::vector<std::string> OptionTable::known_names() const {
  Words names;
  for (const auto& row : rows_by_name_) names.push_back(row.first);
  return names;
}

std::string OptionTable::suggestion(const std::string& unknown, bool as_key) const {
  Words near = nearest_names(normal_option_name(unknown), known_names());
  for (std::string& name : near) {
    if (as_key) {
      for (char& c : name) c = c == '-' ? '_' : c;
    } else {
      const Option& row = *rows_by_name_.at(name);
      name = normal_option_name(row.name()) == name ? row.name() : "--" + name;
    }
  }
  return did_you_mean(near);
}

bool OptionTable::print_help_if_asked(const std::vector<std::string>& arguments) const {
  for (const std::string& word : arguments) {
    if (word == "--") return false;
    const std::string name = normal_option_name(option_part(word));
    std::string text;
    if (word == "-h" || word == "--help") {
      text = help(false);
    } else if (word.starts_with("--help=") || word.starts_with("--help-all=") || word.starts_with("--help_all=")) {
      text = help_of(word.substr(word.find('=') + 1));
    } else if (word == "--help-names") {  // for completion
      for (const auto& option : options_)
        if (option->effect() == OptionEffect::kUsed) text += option->name() + "\n";
    } else if (word.starts_with("--") && name == "help-all") {
      text = help(true);
    } else {
      continue;
    }
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return true;
  }
  return false;
}

}  // namespace espalier
