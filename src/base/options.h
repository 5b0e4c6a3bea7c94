// One table of options: parsing, --help, "did you mean", completion, recipe files and the resolved configuration all
// come from it.
//
//   PreprocessOptions o;                       // defaults live in the struct and nowhere else
//   OptionTable table("espalier preprocess", "Turns JSONL text into token files.");
//   table.group("input");
//   table.add("--input", o.inputs, "JSONL files, plain, .gz or .zst; - reads standard input").required();
//   table.add("--workers", o.workers, "threads that tokenize").minimum(1);
//   table.add("--append-eod", o.append_eod, "end every document with the end-of-document token");
//   table.parse(arguments);                    // throws one UserError (exit code 2) with every problem
//
// A row binds a name to a variable of the caller, so libraries receive their own typed struct and never see the table.
// Spelling: '-' and '_' are the same in names; `--x=1` and `--x 1`; `1_000` is an integer (Python's rules for numbers:
// `1e3` is none); a repeated option replaces, also for lists; a list takes all words up to the next option.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace espalier {

enum class OptionEffect {
  kUsed,
  kNoEffect,   // accepted; said once why it changes nothing here
  kRefused,    // known, not supported: the text says what to use instead
};

// One row. The setters return *this so that a row reads as a sentence.
class Option {
 public:
  Option& alias(const std::string& name);                 // another spelling, same meaning
  Option& required();
  Option& choices(std::vector<std::string> names);        // legal values of a string or of each list element
  Option& minimum(double value);                          // inclusive
  Option& maximum(double value);
  Option& value_name(const std::string& name);            // in the help: "N", "FILE"; derived from the type if unset
  Option& owner(const std::string& library);
  Option& not_in_recipe();                                // only on the command line (--recipe, --help)
  Option& count(int exactly);                             // a list of exactly so many words

  const std::string& name() const { return name_; }       // canonical, with dashes: "--hidden-size"
  std::string key() const;                                // recipe key: "hidden_size"
  const std::vector<std::string>& aliases() const { return aliases_; }
  const std::string& group() const { return group_; }
  const std::string& help() const { return help_; }
  OptionEffect effect() const { return effect_; }
  bool is_flag() const { return is_flag_; }
  bool is_list() const { return is_list_; }
  bool given() const { return given_; }                   // on the command line or in a recipe
  const std::string& source() const { return source_; }   // "command line" or "recipes/tiny.toml:14"
  std::vector<std::string> values() const { return get_(); }   // current, as text; empty when an optional is unset
  std::vector<std::string> default_values() const { return default_; }
  std::string toml_value() const;                         // as it stands in config.toml

 private:
  friend class OptionTable;
  std::string name_, group_, help_, owner_, value_name_, source_, effect_reason_;
  std::vector<std::string> aliases_, choices_, default_;
  std::optional<double> minimum_, maximum_;
  OptionEffect effect_ = OptionEffect::kUsed;
  bool is_flag_ = false, is_list_ = false, is_text_ = false, required_ = false, given_ = false, in_recipe_ = true;
  int count_ = 0;
  // Parses the words into the bound variable; returns the problem, or "".
  std::function<std::string(const std::vector<std::string>&)> set_;
  std::function<std::vector<std::string>()> get_;
};

class OptionTable {
 public:
  OptionTable(std::string program, std::string summary);
  ~OptionTable();
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  void group(const std::string& name);  // of the rows that follow

  // The bound variable must outlive the table. Its value now is the default.
  Option& add(const std::string& name, bool& target, const std::string& help);       // a flag: sets true
  Option& add_negative(const std::string& name, bool& target, const std::string& help);  // --no-x: sets false
  Option& add(const std::string& name, int64_t& target, const std::string& help);
  Option& add(const std::string& name, double& target, const std::string& help);
  Option& add(const std::string& name, std::string& target, const std::string& help);
  Option& add(const std::string& name, std::optional<int64_t>& target, const std::string& help);
  Option& add(const std::string& name, std::optional<double>& target, const std::string& help);
  Option& add(const std::string& name, std::vector<std::string>& target, const std::string& help);
  Option& add(const std::string& name, std::vector<int64_t>& target, const std::string& help);

  // One of a fixed set of names.
  template <class Enum>
  Option& add_choice(const std::string& name, Enum& target, std::vector<std::pair<std::string, Enum>> names,
                     const std::string& help) {
    std::vector<std::string> texts;
    for (const auto& entry : names) texts.push_back(entry.first);
    auto find = [names](const Enum& value) {
      for (const auto& entry : names)
        if (entry.second == value) return entry.first;
      return std::string();
    };
    return add_row(name, help, /*is_flag=*/false, /*is_list=*/false, /*is_text=*/true,
        [&target, names](const std::vector<std::string>& words) -> std::string {
          for (const auto& entry : names)
            if (entry.first == words.at(0)) {
              target = entry.second;
              return "";
            }
          return "is not a choice";  // choices() lists them before this is reached
        },
        [&target, find] { return std::vector<std::string>{find(target)}; }).choices(texts);
  }

  // Rows of Megatron's that change nothing here (flag or number of values as upstream takes), or that are refused.
  enum class Takes { kFlag, kOne, kList };
  Option& add_without_effect(const std::string& name, Takes takes, const std::string& why);
  Option& add_refused(const std::string& name, Takes takes, const std::string& use_instead);

  // Words that are no option, for `espalier data inspect PREFIX`.
  void positional(const std::string& value_name, std::vector<std::string>& target, const std::string& help,
                  size_t minimum, size_t maximum);

  // Unique prefixes of names are accepted (as upstream's stand-alone tools do; never in training).
  void allow_prefixes() { allow_prefixes_ = true; }
  // Adds --recipe FILE...: TOML files whose keys are option names with underscores, in tables that only group them;
  // read left to right before the flags.
  void allow_recipes() { allow_recipes_ = true; }

  // Reads recipes and flags, checks types, choices and ranges, and leaves every problem found in `problems` (so that
  // the caller can add its own cross-checks before raising). Returns false when help was asked for and printed.
  bool parse(const std::vector<std::string>& arguments, Problems& problems);
  // The same, raising at once.
  bool parse(const std::vector<std::string>& arguments);
  // Applies recipe text as if read from a file of that name (for tests and for config.toml of a checkpoint).
  void parse_toml(const std::string& content, const std::string& file_name, Problems& problems);

  std::string help(bool all = true) const;
  std::string help_of(const std::string& option_or_group) const;
  // The resolved configuration: every used row, grouped, as TOML that parse_toml reads back.
  std::string to_toml() const;
  const std::vector<std::unique_ptr<Option>>& options() const { return options_; }
  const Option* find(const std::string& name_or_alias) const;
  // Where the current value of a row comes from, for messages: "--hidden-size 30 (recipes/tiny.toml:14)".
  std::string origin(const std::string& name) const;

 private:
  Option& add_row(const std::string& name, const std::string& help, bool is_flag, bool is_list, bool is_text,
                  std::function<std::string(const std::vector<std::string>&)> set,
                  std::function<std::vector<std::string>()> get);

  std::string program_, summary_, current_group_ = "options";
  std::vector<std::unique_ptr<Option>> options_;
  struct Positional;
  std::unique_ptr<Positional> positional_;
  std::vector<std::string> recipes_;
  bool allow_prefixes_ = false, allow_recipes_ = false;
};

}  // namespace espalier
