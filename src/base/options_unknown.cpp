// What is reported about names and words that a table does not know.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <initializer_list>

#include "base/format.h"
#include "base/internal/option_words.h"
#include "base/options.h"

namespace espalier {

namespace internal {

using Words = std::vector<std::string>;

std::string did_you_mean(const Words& names) {
  if (names.empty()) return "";
  std::string text = "; did you mean " + names.front();
  for (size_t i = 1; i < names.size(); ++i) text += (i + 1 < names.size() ? ", " : " or ") + names[i];
  return text + "?";
}

std::string quoted_word(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_of(" \t\n\"'") == std::string::npos;
  return plain ? word : "'" + word + "'";
}

// "; did you mean 'recipes/tiny.toml'?", for a name without folder or ending.
std::string other_recipe(const std::string& path) {
  std::error_code error;
  for (const std::string& other : {path + ".toml", "recipes/" + path, "recipes/" + path + ".toml"})
    if (std::filesystem::is_regular_file(other, error)) return concat("; did you mean '", other, "'?");
  return "";
}

// What other commands and programs call the folder or file that a command works on; or whatever it is called, if it is
// there.
bool names_place(const std::string& name, const std::string& value) {
  static const std::initializer_list<const char*> names = {"load",
                                                           "input",
                                                           "inputs",
                                                           "save",
                                                           "run",
                                                           "runs",
                                                           "run-dir",
                                                           "run-folder",
                                                           "ckpt",
                                                           "path",
                                                           "file",
                                                           "files",
                                                           "checkpoint",
                                                           "ckpt-dir",
                                                           "checkpoint-path",
                                                           "data-path",
                                                           "data",
                                                           "model",
                                                           "dir",
                                                           "model-path",
                                                           "model-dir",
                                                           "folder",
                                                           "model-name-or-path",
                                                           "log-dir",
                                                           "logdir"};
  const std::string normal = normal_option_name(name);
  if (std::any_of(names.begin(), names.end(), [&](const char* other) { return normal == other; })) return true;
  std::error_code error;
  return !value.empty() && std::filesystem::exists(value, error);
}

// A pipe or a device in the place of a recipe may never end.
void check_is_recipe_file(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw UserError(concat("there is no file '", path, "'", other_recipe(path)), ExitCode::kMissingInput);
  }
  if (std::filesystem::is_directory(status)) throw UserError(concat("'", path, "' is a folder; name the .toml file"));
  if (!std::filesystem::is_regular_file(status))
    throw UserError(concat("'", path, "' is a pipe or a device, not a file"));
}

}  // namespace internal

namespace {

using Words = std::vector<std::string>;
using namespace internal;

bool is_one_of(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* other) { return word == other; });
}

// Word processors and web pages turn "--" into one of the longer dashes.
std::string dash_of(const std::string& word) {
  struct Dash {
    const char *bytes, *name;
  };
  for (const Dash& dash :
       {Dash{"\xe2\x80\x90", "U+2010"}, Dash{"\xe2\x80\x91", "U+2011"}, Dash{"\xe2\x80\x92", "U+2012"},
        Dash{"\xe2\x80\x93", "U+2013"}, Dash{"\xe2\x80\x94", "U+2014"}, Dash{"\xe2\x80\x95", "U+2015"},
        Dash{"\xe2\x88\x92", "U+2212"}}) {
    const size_t at = word.find(dash.bytes);
    if (at > 1) continue;
    const std::string rest = word.substr(at + 3);
    return concat("its dash is ", dash.name, ", as web pages and word processors write it; write --",
                  rest.substr(std::min(rest.find_first_not_of('-'), rest.size())));
  }
  return "";
}

}  // namespace

// What a word that belongs to no option should have been.
std::string OptionTable::stray_word(const std::string& word, const std::string& last_flag) const {
  const bool is_truth = is_one_of(word, {"true", "True", "1", "yes", "on"});
  const bool is_false = is_one_of(word, {"false", "False", "0", "no", "off"});
  if (!last_flag.empty() && is_truth) return concat(last_flag, " is a switch: alone it is on; leave the word out");
  if (!last_flag.empty() && is_false)
    return concat(last_flag, " is a switch: leave it out, or write ", last_flag, "=false");
  // The first that is missing; what exists is rather a folder to work on than a text.
  std::error_code error;
  const bool exists = std::filesystem::exists(word, error);
  for (const auto& option : options_) {
    const bool is_folder = option->name_ == "--load" && std::filesystem::is_directory(word, error);
    const bool takes = option->kind_ == OptionKind::kText && option->choices_.empty() &&
                       (is_folder || (option->required_ && (stray_option_.empty() || exists)));
    if (!takes || option->given_ || option->perhaps_meant_) continue;
    option->perhaps_meant_ = true;
    return concat("write ", option->name(), " ", quoted_word(word));
  }
  if (stray_option_.starts_with("--")) {
    if (Option* option = find_row(stray_option_, /*exact=*/true, nullptr)) option->perhaps_meant_ = true;
    return concat("write ", stray_option_, " ", quoted_word(word));
  }
  if (!stray_option_.empty()) return stray_option_;
  if (const std::string dash = dash_of(word); !dash.empty()) return dash;
  const Option* file = last_flag.empty() ? nullptr : find(last_flag + "-config");
  if (file != nullptr) return concat(last_flag, " takes no value; write ", file->name(), " ", quoted_word(word));
  if (!last_flag.empty()) return last_flag + " takes no value";
  const Option* option = find(word);
  if (option != nullptr) return concat("the option is ", option->name());
  return "options begin with --";
}

// "unknown option --x", and what exists instead.
std::string OptionTable::unknown_option(const std::string& name) {
  if (const std::string here = name_here(name); !here.empty()) return concat("unknown option ", name, here);
  excuse_neighbours(name);
  const std::string normal = normal_option_name(name);
  const Option* positive = normal.starts_with("no-") ? find(normal.substr(3)) : nullptr;
  if (positive != nullptr && positive->is_flag())
    return concat("unknown option ", name, ": ", positive->name(), " is a switch: leave it out, or write ",
                  positive->name(), "=false");
  const Option* negative = find("no-" + normal);
  if (negative != nullptr && negative->is_flag())
    return concat("unknown option ", name, ": it is on unless ", negative->name(), " is given");
  const std::string near = suggestion(name, /*as_key=*/false);
  if (!near.empty()) return concat("unknown option ", name, near);
  return concat("unknown option ", name, ": ",
                unknown_hint_.empty() ? concat("`", program_, " --help` lists what there is") : unknown_hint_);
}

// ": here it is --lr", for what other programs call it; "" for other names. Options that are named count as meant.
std::string OptionTable::name_here(const std::string& name) {
  if (const std::string dash = dash_of(name); !dash.empty()) {
    const std::string meant = dash.substr(dash.rfind("--"));
    if (Option* option = find_row(meant, /*exact=*/true, nullptr)) option->perhaps_meant_ = true;
    return ": " + dash;
  }
  if (normal_option_name(name) == "version") return ": `espalier version` shows it";
  const bool is_short = name.size() > 1 && name[0] == '-' && (std::isalpha(static_cast<unsigned char>(name[1])) != 0);
  const auto found = known_elsewhere_.find(normal_option_name(name));
  if (found == known_elsewhere_.end())
    return is_short ? concat(": names begin with two dashes, and `", program_, " --help` lists them") : "";
  for (const std::string& word : split_blanks(found->second))
    if (word.starts_with("--"))
      if (Option* option = find_row(word.substr(0, word.find_first_of(",;:)")), /*exact=*/true, nullptr))
        option->perhaps_meant_ = true;
  return (found->second.starts_with("--") ? ": here it is " : ": ") + found->second;
}

void OptionTable::known_elsewhere(const std::vector<std::string>& names, const std::string& here) {
  for (const std::string& name : names) known_elsewhere_.emplace(normal_option_name(name), here);
}

std::vector<std::string> OptionTable::known_names() const {
  Words names;
  for (const auto& row : rows_by_name_) names.push_back(row.first);
  return names;
}

void OptionTable::excuse_neighbours(const std::string& unknown) {
  for (const std::string& name : nearest_names(normal_option_name(unknown), known_names()))
    rows_by_name_.at(name)->perhaps_meant_ = true;
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

}  // namespace espalier
