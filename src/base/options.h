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
// `1e3` is none); a repeated option replaces, also for lists; a list takes all words up to the next option. A flag of
// a recipe is taken back with `--flag=false`. A negative number after a blank is `-3` or `-0.5`; `-1e-8` needs the '='.
// docs/options.md says the same to users.
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
  kNoEffect,  // accepted; reported once why it changes nothing here
  kRefused,   // known, not supported: the text says what to use instead
};

// Whether a run that continues from a checkpoint may have another value than the one that was saved.
enum class ResumeRule {
  kFree,          // layout, micro-batch, intervals, paths, stop conditions, logging
  kLearningRate,  // --override-lr-scheduler or --use-checkpoint-lr-scheduler decides
  kOverride,      // only with --override NAME: it changes what is learnt
  kRefused,       // the shape of the model
};

// What the words of a row are. kTruth takes one word, of which any but "" is true (Python's bool, as Megatron has it).
enum class OptionKind { kFlag, kInteger, kNumber, kText, kTruth };

// One row. The setters return *this so that a row reads as a sentence.
class Option {
 public:
  Option& alias(const std::string& name);  // another spelling, same meaning
  Option& required();
  Option& choices(std::vector<std::string> names);  // legal values of a string or of each list element
  // A value of Megatron's that is not a choice here ("*": any): the message says why, or what to use instead.
  Option& refuse_value(const std::string& value, const std::string& reason);
  Option& minimum(double value);  // inclusive
  Option& maximum(double value);
  Option& default_text(const std::string& text);  // in the help, for a default that is derived: "4 * hidden"
  Option& value_name(const std::string& name);    // in the help: "N", "FILE"; derived from the type if unset
  Option& not_in_recipe();                        // only on the command line (--recipe, --help)
  Option& count(size_t exactly);                  // a list of exactly this many words
  Option& on_resume(ResumeRule rule);             // kOverride by default
  Option& common();                               // shown by -h; a table without such rows shows all

  const std::string& name() const { return name_; }  // canonical, with dashes: "--hidden-size"
  std::string key() const;                           // recipe key: "hidden_size"
  const std::vector<std::string>& aliases() const { return aliases_; }
  const std::string& group() const { return group_; }
  const std::string& value_name() const { return value_name_; }  // empty: derived from the type
  const std::string& help() const { return help_; }
  OptionEffect effect() const { return effect_; }
  OptionKind kind() const { return kind_; }
  bool is_flag() const { return kind_ == OptionKind::kFlag; }
  bool is_list() const { return is_list_; }
  const std::vector<std::string>& legal_values() const { return choices_; }
  const std::string& effect_reason() const { return effect_reason_; }  // of rows without effect, or refused
  bool in_recipe() const { return in_recipe_; }
  ResumeRule resume_rule() const { return resume_rule_; }
  bool given() const { return given_; }  // on the command line or in a recipe
  // What it was to say is not known: its value was refused, or a name that nobody knows was perhaps meant for it. That
  // is reported, and what follows from its absence would be no news.
  bool unclear() const { return refused_ || perhaps_meant_; }
  const std::string& source() const { return source_; }       // "command line" or "recipes/tiny.toml:14"
  std::vector<std::string> values() const { return get_(); }  // current, as text; empty when an optional is unset
  std::vector<std::string> default_values() const { return default_; }
  std::string toml_value() const;  // as it is in config.toml

 private:
  friend class OptionTable;
  std::string name_, group_, help_, value_name_, source_, effect_reason_, default_text_;
  std::vector<std::string> aliases_, choices_, default_;
  std::map<std::string, std::string> refused_values_;
  std::optional<double> minimum_, maximum_;
  OptionEffect effect_ = OptionEffect::kUsed;
  ResumeRule resume_rule_ = ResumeRule::kOverride;
  OptionKind kind_ = OptionKind::kText;
  bool is_list_ = false, required_ = false, given_ = false, in_recipe_ = true, common_ = false;
  bool perhaps_meant_ = false;  // a misspelt name is near: that is reported, not that this one is missing
  bool refused_ = false;        // its value was
  std::optional<size_t> count_;
  // Takes checked words (a flag gets "true" or "false") into the bound variable.
  std::function<void(const std::vector<std::string>&)> set_;
  std::function<std::vector<std::string>()> get_;
  std::function<void(const std::string&)> enter_name_;  // makes the table find the row by one more name
};

// "--hidden_size", "hidden-size" and "hidden_size" are one name: "hidden-size".
std::string normal_option_name(const std::string& name);

class OptionTable {
 public:
  OptionTable(std::string program, std::string summary);
  ~OptionTable();
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  void group(const std::string& name);  // of the rows that follow

  // The bound variable must outlive the table. Its value now is the default.
  Option& add(const std::string& name, bool& target, const std::string& help);           // a flag: sets true
  Option& add_negative(const std::string& name, bool& target, const std::string& help);  // --no-x: sets false
  Option& add_truth(const std::string& name, bool& target, const std::string& help);     // kTruth: takes a word
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
    Binding binding;
    binding.set = [&target, names](const std::vector<std::string>& words) {
      for (const auto& entry : names)
        if (entry.first == words.at(0)) target = entry.second;
    };
    binding.get = [&target, find] { return std::vector<std::string>{find(target)}; };
    return add_row(name, help, std::move(binding)).choices(texts);
  }

  // Rows of Megatron's that change nothing here (flag or number of values as upstream takes), or that are refused.
  enum class Takes { kFlag, kOne, kList };
  Option& add_without_effect(const std::string& name, Takes takes, const std::string& why);
  Option& add_refused(const std::string& name, Takes takes, const std::string& use_instead);

  // Words that are not options, for `espalier data inspect PREFIX`.
  void positional(const std::string& value_name, std::vector<std::string>& target, const std::string& help,
                  size_t minimum, size_t maximum);
  // What a word that belongs to no option was probably meant for: the option whose value it is ("--prompt"), or a
  // sentence ("the text is read from standard input").
  void stray_words_mean(const std::string& option) { stray_option_ = option; }

  // What other programs call an option ("--learning-rate"), and what it is here: the name of one of these options
  // ("--lr"), or a sentence ("runs are counted in steps: --train-iters"). Not accepted, but answered with that.
  void known_elsewhere(const std::vector<std::string>& names, const std::string& here);
  // The answer to an unknown option about which nothing else is known.
  void unknown_options_mean(const std::string& sentence) { unknown_hint_ = sentence; }

  // Unique prefixes of names are accepted (as upstream's stand-alone tools do; never in training).
  void allow_prefixes() { allow_prefixes_ = true; }
  // Adds --recipe FILE...: TOML files whose keys are option names with underscores, in tables that only group them;
  // read left to right before the flags. Repeated, it adds files.
  void allow_recipes();
  // Off: rows without effect are not remarked on (for the program that hands its arguments on to another).
  void say_notes(bool say) { say_notes_ = say; }
  bool says_notes() const { return say_notes_; }

  // Reads recipes and flags, checks types, choices and ranges, and leaves every problem found in `problems` (so that
  // the caller can add its own cross-checks before raising). Returns false when help was asked for and printed. May
  // be called once. -h, --help, --help=GROUP, --help=OPTION and --help-all print to stdout; so do, for programs,
  // --help-man and, as the first word, --complete-words WORD... A recipe that cannot be read raises at once, with the
  // problems of the flags: what is missing without it is not reported.
  bool parse(const std::vector<std::string>& arguments, Problems& problems);
  // The same, raising at once.
  bool parse(const std::vector<std::string>& arguments);
  // Applies recipe text as if read from a file of that name (for tests and for config.toml of a checkpoint).
  // False where it is not TOML at all.
  bool parse_toml(const std::string& content, const std::string& file_name, Problems& problems);
  // Gives one option a value that comes from elsewhere, checked as any other; `source` is what messages name.
  void set(const std::string& name, const std::string& word, const std::string& source, Problems& problems);

  std::string help(bool all = true) const;                        // all: also rows that are not common()
  std::string help_of(const std::string& option_or_group) const;  // UserError if there is none of that name
  std::string help_markdown() const;                              // all of it, as a table for each group
  std::string man_page() const;                                   // roff, section 1
  // What can be in the place of the last word, one a line: "WORD<TAB>what it is"; or one line ":files" or
  // ":folders", where the shell knows better; or nothing.
  std::string completions(const std::vector<std::string>& words) const;
  // The resolved configuration: every used row, grouped, as TOML that parse_toml reads back.
  std::string to_toml() const {
    return to_toml([](const Option&) { return true; });
  }
  // Only the rows that `wanted` names.
  std::string to_toml(const std::function<bool(const Option&)>& wanted) const;
  const std::vector<std::unique_ptr<Option>>& options() const { return options_; }
  const Option* find(const std::string& name_or_alias) const;
  // Where the current value of a row comes from, for messages: "--hidden-size 30 (recipes/tiny.toml:14)".
  std::string origin(const std::string& name) const;

 private:
  struct Binding {
    OptionKind kind = OptionKind::kText;
    bool is_list = false;
    std::function<void(const std::vector<std::string>&)> set;
    std::function<std::vector<std::string>()> get;
  };
  struct Positional {
    std::string value_name, help;
    std::vector<std::string>* target = nullptr;
    size_t minimum = 0, maximum = 0;
  };
  struct Reading;  // one pass over the command line

  Option& add_row(const std::string& name, const std::string& help, Binding binding);
  Option& add_inert(const std::string& name, Takes takes, OptionEffect effect, const std::string& reason);
  Option* find_row(const std::string& name, bool exact, std::vector<std::string>* ambiguous) const;
  std::vector<std::string> known_names() const;
  std::string suggestion(const std::string& unknown, bool as_key) const;
  void excuse_neighbours(const std::string& unknown);
  std::string unknown_option(const std::string& name);
  std::string name_here(const std::string& name);
  std::string stray_word(const std::string& word, const std::string& last_flag) const;
  std::string value_completions(const Option& option, const std::string& before, const std::string& typed) const;
  std::string usage_line() const;
  bool print_help_if_asked(const std::vector<std::string>& arguments) const;
  bool is_option_word(const std::string& word) const;
  bool read_recipes(const std::vector<std::string>& arguments, Problems& problems);  // false: one cannot be read
  void read_option(Reading& reading, const std::string& word);
  void read_positionals(const std::vector<std::string>& words, Problems& problems);
  void assign(Option& option, const std::vector<std::string>& words, const std::string& source, Problems& problems);
  void note(const Option& option);
  void finish(Problems& problems);
  std::string help_row(const Option& option) const;
  std::string markdown_row(const Option& option) const;
  std::string help_group(const std::string& group, bool all) const;
  std::vector<std::string> groups() const;

  std::string program_, summary_, stray_option_, unknown_hint_, current_group_ = "options";
  std::map<std::string, std::string> known_elsewhere_;  // "learning-rate" -> "--lr"
  std::vector<std::unique_ptr<Option>> options_;
  std::map<std::string, Option*> rows_by_name_;  // "hidden-size", aliases too
  std::optional<Positional> positional_;
  std::vector<std::string> recipes_;
  bool allow_prefixes_ = false, allow_recipes_ = false, say_notes_ = true;
};

}  // namespace espalier
