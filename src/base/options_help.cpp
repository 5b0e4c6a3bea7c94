// The help of a table: -h, --help-all, --help=GROUP, --help=OPTION.
#include <algorithm>

#include "base/console.h"
#include "base/format.h"
#include "base/options.h"

namespace espalier {
namespace {

constexpr size_t kWidth = 100, kIndent = 42;

std::string value_word(const Option& option, const std::string& value_name) {
  if (option.is_flag()) return "";
  if (!value_name.empty()) return value_name;
  if (!option.legal_values().empty()) return join(option.legal_values(), "|");
  switch (option.kind()) {
    case OptionKind::kInteger: return "N";
    case OptionKind::kNumber: return "X";
    default: return "TEXT";
  }
}

// "" for a flag.
std::string default_of(const Option& option, const std::string& default_text) {
  if (option.is_flag()) return "";
  return default_text.empty() ? join(option.default_values(), " ") : default_text;
}

// "|" parts the cells of a table, also within `code`.
std::string markdown_cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

std::string lower_case(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

}  // namespace

std::string OptionTable::help_row(const Option& option) const {
  std::string left = option.name();
  for (const std::string& alias : option.aliases()) left += ", " + alias;
  const std::string value = value_word(option, option.value_name_);
  if (!value.empty()) left += " " + value + (option.is_list() ? "..." : "");
  left = "  " + wrap_text(left, 2, 6, kWidth);
  std::string right = option.help();
  if (option.effect() == OptionEffect::kNoEffect) right = "(no effect: " + option.effect_reason() + ")";
  if (option.effect() == OptionEffect::kRefused) right = "(not supported: " + option.effect_reason() + ")";
  if (option.required_) right += " (required)";
  const std::string default_text = default_of(option, option.default_text_);
  if (!option.required_ && !default_text.empty()) right += " [" + default_text + "]";
  if (left.size() + 2 > kIndent || left.find('\n') != std::string::npos) {
    left += "\n" + std::string(kIndent, ' ');
  } else {
    left += std::string(kIndent - left.size(), ' ');
  }
  return left + wrap_text(right, kIndent, kIndent, kWidth) + "\n";
}

std::string OptionTable::markdown_row(const Option& option) const {
  const std::string value = value_word(option, option.value_name_);
  std::string left = "`" + option.name();
  if (!value.empty()) left += " " + value + (option.is_list() ? "..." : "");
  left += "`";
  for (const std::string& alias : option.aliases()) left += ", `" + alias + "`";
  std::string right = option.help();
  if (option.effect() == OptionEffect::kNoEffect) right = "*no effect*: " + option.effect_reason();
  if (option.effect() == OptionEffect::kRefused) right = "*not supported*: " + option.effect_reason();
  for (const auto& [name, reason] : option.refused_values_)
    right += (name == "*" ? "; others are refused: " : "; `" + name + "` is refused: ") + reason;
  if (option.required_) right += " (required)";
  const std::string default_text = default_of(option, option.default_text_);
  const bool has_default = option.effect() == OptionEffect::kUsed && !option.required_;
  return concat("| ", markdown_cell(left), " | ", markdown_cell(right), " | ",
                has_default ? markdown_cell(default_text) : "", " |\n");
}

std::string OptionTable::help_markdown() const {
  std::string text;
  for (const std::string& group : groups()) {
    text += concat("\n## ", group, "\n\n| option | here | default |\n|---|---|---|\n");
    for (const auto& option : options_)
      if (option->group() == group) text += markdown_row(*option);
  }
  return text;
}

std::vector<std::string> OptionTable::groups() const {
  std::vector<std::string> names;
  for (const auto& option : options_)
    if (std::find(names.begin(), names.end(), option->group()) == names.end()) names.push_back(option->group());
  return names;
}

std::string OptionTable::help_group(const std::string& group, bool all) const {
  std::string rows;
  for (const auto& option : options_)
    if (option->group() == group && (all || option->common_)) rows += help_row(*option);
  return rows.empty() ? "" : "\n" + group + ":\n" + rows;
}

std::string OptionTable::usage_line() const {
  std::string text = "usage: " + program_;
  if (positional_) {
    const std::string word = positional_->value_name + (positional_->maximum > 1 ? "..." : "");
    text += positional_->minimum == 0 ? " [" + word + "]" : " " + word;
  }
  return text + " [options]";
}

std::string OptionTable::help(bool all) const {
  const auto is_common = [](const std::unique_ptr<Option>& option) { return option->common_; };
  const bool has_common = std::any_of(options_.begin(), options_.end(), is_common);
  std::string text = usage_line() + "\n\n" + wrap_text(summary_, 0, 0, kWidth) + "\n";
  if (positional_) {
    const size_t indent = positional_->value_name.size() + 4;
    text += "\n  " + positional_->value_name + "  " + wrap_text(positional_->help, indent, indent, kWidth) + "\n";
  }
  for (const std::string& group : groups()) text += help_group(group, all || !has_common);
  text += "\nhelp:\n  -h, --help, --help-all, --help=GROUP, --help=OPTION\n";
  if (has_common && !all)
    text += "\n" +
            wrap_text(concat("These are the common options; --help-all shows all ", options_.size(),
                             ". Groups: ", join(groups(), ", "), "."),
                      0, 0, kWidth) +
            "\n";
  return text;
}

std::string OptionTable::help_of(const std::string& option_or_group) const {
  std::string text;
  for (const std::string& group : groups())
    if (lower_case(group).starts_with(lower_case(option_or_group))) text += help_group(group, true);
  if (!text.empty()) return text.substr(1);
  const Option* option = find(option_or_group);
  if (option == nullptr) {
    throw UserError(concat("no option or group of options is called ", option_or_group,
                           suggestion(option_or_group, /*as_key=*/false), "\nGroups: ", join(groups(), ", ")),
                    ExitCode::kUsage);
  }
  text = option->group() + ":\n" + help_row(*option);
  if (option->minimum_) text += "  smallest value: " + format_shortest(*option->minimum_) + "\n";
  if (option->maximum_) text += "  largest value: " + format_shortest(*option->maximum_) + "\n";
  if (option->in_recipe()) text += "  in a recipe: " + option->key() + "\n";
  return text;
}

}  // namespace espalier
