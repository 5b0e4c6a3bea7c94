// Reading of command lines, and the checks that words of flags and of recipes have in common.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <map>

#include "base/console.h"
#include "base/file.h"
#include "base/format.h"
#include "base/internal/option_words.h"
#include "base/literal.h"
#include "base/log.h"
#include "base/options.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;
using namespace internal;

constexpr const char* kCommandLine = "command line";

// Python's argparse takes "-3" and "-0.5" for values, "-1e-8" for an option.
bool is_negative_number(const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const size_t dot = word.find('.');
  if (word.find_first_not_of("0123456789.", 1) != std::string::npos) return false;
  return dot == std::string::npos || (word.find('.', dot + 1) == std::string::npos && dot + 1 < word.size());
}

// On a terminal the lines that head something stand out.
std::string with_bold_headings(const std::string& text) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const bool is_heading = line.ends_with(":") && !line.starts_with(" ");
    result += is_heading || line.starts_with("usage: ") ? styled(Stream::kOutput, Style::kBold, line) : line;
    if (end < text.size()) result += "\n";
    begin = end + 1;
  }
  return result;
}

std::string option_part(const std::string& word) { return word.substr(0, word.find('=')); }

std::string limit_text(double limit) {
  const bool is_integer = limit == std::floor(limit) && std::abs(limit) < 1e15;
  return is_integer ? std::to_string(static_cast<int64_t>(limit)) : format_shortest(limit);
}

std::string integer_problem(const std::string& word) {
  const std::optional<double> number = parse_python_float(word);
  if (number && *number == std::floor(*number) && std::abs(*number) < 9e18)
    return concat("is not an integer; write ", static_cast<int64_t>(*number));
  if (number && std::abs(*number) >= 9e18 && word.find_first_not_of("+-_0123456789") == std::string::npos)
    return concat("is too large for an integer of 64 bits, at most ", INT64_MAX);
  return "is not an integer";
}

// By which of its names an option was given last, and what it then was.
using SaidNames = std::map<const Option*, std::pair<std::string, Words>>;

// Given twice by one name, the last one counts, as in argparse; by two, nobody can know which was meant.
void check_names_agree(const Option& option, const std::string& typed, SaidNames& said, Problems& problems) {
  std::string name = option.name();
  for (const std::string& alias : option.aliases())
    if (normal_option_name(alias) == normal_option_name(typed)) name = alias;
  const Words values = option.values();
  const auto [found, is_first] = said.emplace(&option, std::pair{name, values});
  auto& [last_name, last_values] = found->second;
  if (!is_first && last_name != name && last_values != values)
    problems.add(last_name, " ", join(last_values, " "), " and ", name, " ", join(values, " "),
                 " are the same option, and differ; give one");
  last_name = name;
  last_values = values;
}

}  // namespace

struct OptionTable::Reading {
  const Words& arguments;
  Problems& problems;
  size_t at = 0;
  Words words;            // those that belong to no option
  std::string last_flag;  // a word after it was perhaps meant as its value
  SaidNames said;
};

bool OptionTable::parse(const std::vector<std::string>& arguments) {
  Problems problems;
  const bool go_on = parse(arguments, problems);
  problems.raise();
  return go_on;
}

bool OptionTable::parse(const std::vector<std::string>& arguments, Problems& problems) {
  if (print_help_if_asked(arguments)) return false;
  const bool has_recipes = !allow_recipes_ || read_recipes(arguments, problems);
  Reading reading{arguments, problems, 0, {}, ""};
  bool only_words = false;
  while (reading.at < arguments.size()) {
    const std::string& word = arguments[reading.at++];
    if (!only_words && word == "--") {
      only_words = true;
    } else if (!only_words && is_option_word(word)) {
      read_option(reading, word);
    } else if (!positional_) {
      problems.add("unexpected word ", quoted_word(word), ": ", stray_word(word, reading.last_flag));
    } else {
      reading.words.push_back(word);
    }
  }
  if (!has_recipes) problems.raise();
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
    const std::string value = equals != std::string::npos ? word.substr(equals + 1)
                              : next_is_value()           ? reading.arguments[reading.at]
                                                          : "";
    if (ambiguous.empty() && positional_ && known_elsewhere_.count(normal_option_name(name)) == 0 &&
        names_place(name, value)) {
      reading.problems.add("unknown option ", name, ": here ", positional_->value_name,
                           " is given without an option: ", program_, " ", positional_->value_name,
                           positional_->maximum > 1 ? "..." : "");
      if (equals != std::string::npos) reading.words.push_back(value);
      while (next_is_value()) reading.words.push_back(reading.arguments[reading.at++]);
      return;
    }
    // Whoever asks for the version asks for nothing else.
    if (normal_option_name(name) == "version") throw UserError(unknown_option(name), ExitCode::kUsage);
    if (ambiguous.empty()) {
      reading.problems.add(unknown_option(name));
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
    // After a list of numbers comes what the command works on: --keep 2 4 RUN.
    const auto is_for_command = [&] {
      return positional_ && option->kind() == OptionKind::kInteger && !words.empty() &&
             !parse_python_float(reading.arguments[reading.at]);
    };
    while (next_is_value() && (words.empty() || (option->is_list() && !is_for_command())))
      words.push_back(reading.arguments[reading.at++]);
    if (words.empty() && !option->is_list()) {
      option->refused_ = true;
      reading.problems.add(option->name(), " expects a value (a negative one in the form ", option->name(), "=-1e-8)");
      return;
    }
  }
  const bool is_recipe = allow_recipes_ && option->name() == "--recipe";
  if (is_recipe) return;  // recipes were read before
  const auto before = reading.said.find(option);
  if (option->is_list() && say_notes_ && before != reading.said.end() && before->second.second != words)
    log_warning(option->name(), " is given twice; only the last one counts: ", join(words, " "));
  assign(*option, words, kCommandLine, reading.problems);
  if (!option->refused_) check_names_agree(*option, name, reading.said, reading.problems);
}

bool OptionTable::read_recipes(const std::vector<std::string>& arguments, Problems& problems) {
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
  bool all_read = true;
  for (const std::string& file : files) {
    try {
      check_is_recipe_file(file);
      all_read = parse_toml(read_file(file), file, problems) && all_read;
    } catch (const UserError& error) {
      problems.add("--recipe: ", error.what());
      all_read = false;
    }
  }
  recipes_ = files;
  return all_read;
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
  option.refused_ = true;
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
  option.refused_ = !good;
  if (good) option.set_(words);
  if (!good && option.effect_ == OptionEffect::kNoEffect) option.given_ = false;  // refused: nothing to remark on
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
    const bool is_missing = !option->given_ || (option->is_list_ && option->values().empty());
    if (option->required_ && is_missing && !option->perhaps_meant_)
      problems.add(option->name(), " is required: ", option->help());
    if (option->given_ && option->effect_ == OptionEffect::kNoEffect && say_notes_) note(*option);
  }
}

bool OptionTable::print_help_if_asked(const std::vector<std::string>& arguments) const {
  const bool completes = !arguments.empty() && arguments.front() == "--complete-words";
  if (completes) {
    const std::string text = completions({arguments.begin() + 1, arguments.end()});
    std::fwrite(text.data(), 1, text.size(), stdout);
    return true;
  }
  for (const std::string& word : arguments) {
    if (word == "--") return false;
    const std::string name = normal_option_name(option_part(word));
    std::string text;
    if (word == "-h" || word == "--help") {
      text = help(false);
    } else if (word.starts_with("--help=") || word.starts_with("--help-all=") || word.starts_with("--help_all=")) {
      text = help_of(word.substr(word.find('=') + 1));
    } else if (word == "--help-man") {
      text = man_page();
    } else if (word.starts_with("--") && name == "help-all") {
      text = help(true);
    } else {
      continue;
    }
    if (word != "--help-man") text = with_bold_headings(text);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return true;
  }
  return false;
}

}  // namespace espalier
