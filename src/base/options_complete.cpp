// What a shell offers when a word of a command line is completed.
#include "base/format.h"
#include "base/options.h"

namespace espalier {
namespace {

// The help of a row, short enough for a menu.
std::string in_short(const std::string& help) {
  constexpr size_t kMost = 60;
  const size_t end = help.find_first_of(";:");
  std::string text = help.substr(0, end);
  if (text.size() > kMost) text = text.substr(0, text.rfind(' ', kMost)) + " ...";
  return text;
}

}  // namespace

std::string OptionTable::value_completions(const Option& option, const std::string& before,
                                           const std::string& typed) const {
  if (option.is_flag()) return before + "true\n" + before + "false\n";
  std::string text;
  for (const std::string& value : option.legal_values())
    if (value.starts_with(typed)) text += before + value + "\n";
  if (!option.legal_values().empty() || option.kind() == OptionKind::kInteger || option.kind() == OptionKind::kNumber)
    return text;
  return option.value_name() == "DIR" ? ":folders\n" : ":files\n";
}

std::string OptionTable::completions(const std::vector<std::string>& words) const {
  const std::string current = words.empty() ? "" : words.back();
  if (current.starts_with("-")) {
    const size_t equals = current.find('=');
    if (equals != std::string::npos) {
      const Option* option = find(current.substr(0, equals));
      return option == nullptr ? ""
                               : value_completions(*option, current.substr(0, equals + 1), current.substr(equals + 1));
    }
    const std::string typed = normal_option_name(current);
    std::string text;
    for (const auto& option : options_)
      if (option->effect() == OptionEffect::kUsed && normal_option_name(option->name()).starts_with(typed))
        text += concat(option->name(), "\t", in_short(option->help()), "\n");
    if (std::string("help").starts_with(typed)) text += "--help\twhat this command does, and its options\n";
    return text;
  }
  for (size_t back = 1; back < words.size(); ++back) {
    const std::string& word = words[words.size() - 1 - back];
    if (!is_option_word(word)) continue;
    const Option* option = word.find('=') == std::string::npos ? find(word) : nullptr;
    if (option == nullptr || option->is_flag() || (back > 1 && !option->is_list())) break;
    return value_completions(*option, "", current);
  }
  return positional_ ? ":files\n" : completions({"-"});
}

}  // namespace espalier
