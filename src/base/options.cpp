// The rows of the table and their binding to variables. Reading: options_parse.cpp, options_toml.cpp.
#include "base/options.h"

#include <algorithm>

#include "base/format.h"
#include "base/literal.h"

namespace espalier {

std::string normal_option_name(const std::string& name) {
  std::string normal = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::replace(normal.begin(), normal.end(), '_', '-');
  return normal;
}

namespace {

using Words = std::vector<std::string>;

std::string truth(bool value) { return value ? "true" : "false"; }

}  // namespace

Option& Option::alias(const std::string& name) {
  aliases_.push_back(name);
  enter_name_(name);
  return *this;
}

Option& Option::required() {
  required_ = true;
  return *this;
}

Option& Option::choices(std::vector<std::string> names) {
  choices_ = std::move(names);
  return *this;
}

Option& Option::refuse_value(const std::string& value, const std::string& reason) {
  refused_values_[value] = reason;
  return *this;
}

Option& Option::default_text(const std::string& text) {
  default_text_ = text;
  return *this;
}

Option& Option::minimum(double value) {
  minimum_ = value;
  return *this;
}

Option& Option::maximum(double value) {
  maximum_ = value;
  return *this;
}

Option& Option::value_name(const std::string& name) {
  value_name_ = name;
  return *this;
}

Option& Option::not_in_recipe() {
  in_recipe_ = false;
  return *this;
}

Option& Option::count(size_t exactly) {
  count_ = exactly;
  return *this;
}

Option& Option::on_resume(ResumeRule rule) {
  resume_rule_ = rule;
  return *this;
}

Option& Option::common() {
  common_ = true;
  return *this;
}

std::string Option::key() const {
  std::string key = normal_option_name(name_);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

OptionTable::OptionTable(std::string program, std::string summary)
    : program_(std::move(program)), summary_(std::move(summary)) {}

OptionTable::~OptionTable() = default;

void OptionTable::group(const std::string& name) { current_group_ = name; }

Option& OptionTable::add_row(const std::string& name, const std::string& help, Binding binding) {
  auto option = std::make_unique<Option>();
  Option* row = option.get();
  row->name_ = name;
  row->help_ = help;
  row->group_ = current_group_;
  row->kind_ = binding.kind;
  row->is_list_ = binding.is_list;
  row->set_ = std::move(binding.set);
  row->get_ = std::move(binding.get);
  row->default_ = row->get_();
  row->enter_name_ = [this, row](const std::string& spelling) {
    const bool is_new = rows_by_name_.emplace(normal_option_name(spelling), row).second;
    ESPALIER_CHECK(is_new, "option ", spelling, " is in the table twice");
  };
  row->enter_name_(name);
  options_.push_back(std::move(option));
  return *row;
}

Option& OptionTable::add(const std::string& name, bool& target, const std::string& help) {
  return add_row(name, help,
                 {OptionKind::kFlag, false, [&target](const Words& words) { target = words.at(0) == "true"; },
                  [&target] { return Words{truth(target)}; }});
}

Option& OptionTable::add_negative(const std::string& name, bool& target, const std::string& help) {
  return add_row(name, help,
                 {OptionKind::kFlag, false, [&target](const Words& words) { target = words.at(0) != "true"; },
                  [&target] { return Words{truth(!target)}; }});
}

Option& OptionTable::add_truth(const std::string& name, bool& target, const std::string& help) {
  return add_row(name, help,
                 {OptionKind::kTruth, false, [&target](const Words& words) { target = !words.at(0).empty(); },
                  [&target] { return Words{truth(target)}; }});
}

Option& OptionTable::add(const std::string& name, int64_t& target, const std::string& help) {
  return add_row(
      name, help,
      {OptionKind::kInteger, false, [&target](const Words& words) { target = *parse_python_int(words.at(0)); },
       [&target] { return Words{std::to_string(target)}; }});
}

Option& OptionTable::add(const std::string& name, double& target, const std::string& help) {
  return add_row(
      name, help,
      {OptionKind::kNumber, false, [&target](const Words& words) { target = *parse_python_float(words.at(0)); },
       [&target] { return Words{format_python_float(target)}; }});
}

Option& OptionTable::add(const std::string& name, std::string& target, const std::string& help) {
  return add_row(name, help,
                 {OptionKind::kText, false, [&target](const Words& words) { target = words.at(0); },
                  [&target] { return target.empty() ? Words{} : Words{target}; }});
}

Option& OptionTable::add(const std::string& name, std::optional<int64_t>& target, const std::string& help) {
  return add_row(
      name, help,
      {OptionKind::kInteger, false, [&target](const Words& words) { target = parse_python_int(words.at(0)); },
       [&target] { return target ? Words{std::to_string(*target)} : Words{}; }});
}

Option& OptionTable::add(const std::string& name, std::optional<double>& target, const std::string& help) {
  return add_row(
      name, help,
      {OptionKind::kNumber, false, [&target](const Words& words) { target = parse_python_float(words.at(0)); },
       [&target] { return target ? Words{format_python_float(*target)} : Words{}; }});
}

Option& OptionTable::add(const std::string& name, std::vector<std::string>& target, const std::string& help) {
  return add_row(
      name, help,
      {OptionKind::kText, true, [&target](const Words& words) { target = words; }, [&target] { return target; }});
}

Option& OptionTable::add(const std::string& name, std::vector<int64_t>& target, const std::string& help) {
  Binding binding{OptionKind::kInteger, true, nullptr, nullptr};
  binding.set = [&target](const Words& words) {
    target.clear();
    for (const std::string& word : words) target.push_back(*parse_python_int(word));
  };
  binding.get = [&target] {
    Words words;
    for (const int64_t value : target) words.push_back(std::to_string(value));
    return words;
  };
  return add_row(name, help, std::move(binding));
}

Option& OptionTable::add_inert(const std::string& name, Takes takes, OptionEffect effect, const std::string& reason) {
  Binding binding;
  binding.kind = takes == Takes::kFlag ? OptionKind::kFlag : OptionKind::kText;
  binding.is_list = takes == Takes::kList;
  binding.set = [](const Words&) {};
  binding.get = [] { return Words{}; };
  Option& option = add_row(name, "", std::move(binding));
  option.effect_ = effect;
  option.effect_reason_ = reason;
  return option;
}

Option& OptionTable::add_without_effect(const std::string& name, Takes takes, const std::string& why) {
  return add_inert(name, takes, OptionEffect::kNoEffect, why);
}

Option& OptionTable::add_refused(const std::string& name, Takes takes, const std::string& use_instead) {
  return add_inert(name, takes, OptionEffect::kRefused, use_instead);
}

void OptionTable::positional(const std::string& value_name, std::vector<std::string>& target, const std::string& help,
                             size_t minimum, size_t maximum) {
  positional_ = Positional{value_name, help, &target, minimum, maximum};
}

void OptionTable::allow_recipes() {
  allow_recipes_ = true;
  const std::string group = current_group_;
  current_group_ = "recipe";
  add("--recipe", recipes_, "TOML files of options, read from left to right; flags override them")
      .value_name("FILE")
      .not_in_recipe()
      .common();
  current_group_ = group;
}

Option* OptionTable::find_row(const std::string& name, bool exact, std::vector<std::string>* ambiguous) const {
  const std::string wanted = normal_option_name(name);
  const auto found = rows_by_name_.find(wanted);
  if (found != rows_by_name_.end()) return found->second;
  if (exact || wanted.empty()) return nullptr;
  Option* match = nullptr;
  std::vector<std::string> matches;
  for (auto at = rows_by_name_.lower_bound(wanted); at != rows_by_name_.end() && at->first.starts_with(wanted); ++at) {
    if (at->second != match) matches.push_back("--" + at->first);
    match = at->second;
  }
  if (matches.size() < 2) return match;
  if (ambiguous != nullptr) *ambiguous = matches;
  return nullptr;
}

const Option* OptionTable::find(const std::string& name_or_alias) const {
  return find_row(name_or_alias, true, nullptr);
}

std::string OptionTable::origin(const std::string& name) const {
  const Option* option = find(name);
  ESPALIER_CHECK(option != nullptr, "no option ", name, " in the table of ", program_);
  std::string text = option->name();
  for (const std::string& value : option->values())
    if (!option->is_flag()) text += " " + value;
  return text + " (" + (option->given() ? option->source() : "default") + ")";
}

}  // namespace espalier
