// Man pages, from the same rows as --help.
#include "base/format.h"
#include "base/options.h"
#include "base/version.h"

namespace espalier {
namespace {

// Text for roff: a backslash, a hyphen that is a minus sign, and a line that may not begin with a dot or an apostrophe.
std::string roff(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else if (c == '|' || c == '/')  // a line may end after it
      escaped += std::string(1, c) + "\\:";
    else
      escaped += c;
  }
  return escaped.starts_with(".") || escaped.starts_with("'") ? "\\&" + escaped : escaped;
}

std::string upper_case(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return text;
}

// "espalier train gpt" -> "espalier-train-gpt"
std::string page_name(std::string program) {
  for (char& c : program) c = c == ' ' ? '-' : c;
  return program;
}

std::string value_of(const Option& option) {
  if (option.is_flag()) return "";
  std::string value = option.value_name();
  if (value.empty() && !option.legal_values().empty()) value = join(option.legal_values(), "|");
  if (value.empty())
    value = option.kind() == OptionKind::kInteger ? "N" : option.kind() == OptionKind::kNumber ? "X" : "TEXT";
  return value + (option.is_list() ? "..." : "");
}

}  // namespace

std::string OptionTable::man_page() const {
  const std::string name = page_name(program_);
  std::string text =
      concat(".TH ", upper_case(roff(name)), " 1 \"\" \"espalier ", kVersion, "\" \"Espalier\"\n",
             ".ad l\n.nh\n.SH NAME\n", roff(name), " \\- ", roff(summary_), "\n.SH SYNOPSIS\n.B ", roff(program_), "\n",
             roff(strip(usage_line().substr(("usage: " + program_).size()))), "\n");
  text += ".SH DESCRIPTION\n" + roff(summary_) + "\n";
  if (positional_) text += ".TP\n.I " + roff(positional_->value_name) + "\n" + roff(positional_->help) + "\n";
  text += ".SH OPTIONS\n";
  for (const std::string& group : groups()) {
    std::string rows;
    for (const auto& option : options_) {
      if (option->group() != group || option->effect() != OptionEffect::kUsed) continue;
      std::string names = "\\fB" + roff(option->name()) + "\\fR";
      for (const std::string& alias : option->aliases()) names += ", \\fB" + roff(alias) + "\\fR";
      if (!option->is_flag()) names += " \\fI" + roff(value_of(*option)) + "\\fR";
      std::string help = option->help();
      if (option->required_) help += " (required)";
      const std::string default_text =
          option->default_text_.empty() ? join(option->default_values(), " ") : option->default_text_;
      if (!option->is_flag() && !option->required_ && !default_text.empty()) help += " [" + default_text + "]";
      rows += ".TP\n" + names + "\n" + roff(help) + "\n";
    }
    if (!rows.empty()) text += ".SS " + roff(group) + "\n" + rows;
  }
  return text +
         ".SH EXIT STATUS\n0: done. 1: failed. 2: wrong options or configuration. 65: bad data. 66: input is missing. "
         "69: another process is gone. 73: cannot create a file. 74: input or output failed. 130: interrupted.\n"
         ".SH SEE ALSO\n.BR espalier (1)\n";
}

}  // namespace espalier
