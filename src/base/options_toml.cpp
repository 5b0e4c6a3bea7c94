// Recipes and resolved configurations: the option table as TOML.
#include <algorithm>

#include "base/format.h"
#include "base/literal.h"
#include "base/options.h"
#include "base/toml_text.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;

struct Entry {
  std::string key;
  const toml::node* node = nullptr;
  int64_t line = 0;
};

// Tables only group: their keys are one flat list, in the order of the file.
void collect_entries(const toml::table& table, std::vector<Entry>& entries) {
  for (const auto& [key, node] : table) {
    if (const toml::table* inner = node.as_table()) {
      collect_entries(*inner, entries);
    } else {
      entries.push_back({std::string(key.str()), &node, static_cast<int64_t>(key.source().begin.line)});
    }
  }
}

// The word that the command line would hold for a value, or nothing (a date, a table in a list).
std::optional<std::string> word_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* integer = node.as_integer()) return std::to_string(integer->get());
  if (const auto* number = node.as_floating_point()) return format_python_float(number->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  return std::nullopt;
}

// The keys of a table that stands for a word of such an option: "START: BLEND" has start and blend. Empty where a word
// is not made of parts.
Words keys_of_parts(const Option& option) {
  Words keys;
  for (const std::string& part : split(option.value_name(), ':')) {
    keys.push_back(strip(part));
    for (char& c : keys.back()) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  return keys.size() > 1 ? keys : Words();
}

// A list in such a table is its elements with commas between them. Returns what is wrong, or "" and the word.
std::string word_of_table(const Option& option, const toml::table& table, std::string& word) {
  const Words keys = keys_of_parts(option);
  if (keys.empty()) return "holds a table, and takes text or numbers";
  for (const auto& [key, node] : table)
    if (std::find(keys.begin(), keys.end(), key.str()) == keys.end())
      return concat("holds a table with the key ", key.str(), "; expected ", join(keys, " and "));
  for (const std::string& key : keys) {
    const toml::node* const node = table.get(key);
    if (node == nullptr) return concat("holds a table without the key ", key);
    Words parts;
    if (const toml::array* list = node->as_array())
      for (const toml::node& element : *list) parts.push_back(word_of(element).value_or(""));
    else
      parts = {word_of(*node).value_or("")};
    if (parts.empty() || std::find(parts.begin(), parts.end(), "") != parts.end())
      return concat("holds a table whose ", key, " is neither text nor a number, nor a list of them");
    word += concat(word.empty() ? "" : ": ", join(parts, ", "));
  }
  return "";
}

// Returns what is wrong with the value, or "" and the words.
std::string words_of(const Option& option, const toml::node& node, Words& words) {
  if (option.is_flag()) {
    if (!node.is_boolean()) return "is a flag: expected true or false";
  } else if (node.is_boolean() && option.kind() == OptionKind::kTruth) {
    words.push_back(node.as_boolean()->get() ? "true" : "");
    return "";
  } else if (node.is_boolean()) {
    return "expects a value, found " + *word_of(node);
  }
  if (const toml::array* list = node.as_array()) {
    if (!option.is_list()) return "takes one value, found a list";
    for (const toml::node& element : *list) {
      if (const toml::table* table = element.as_table()) {
        const std::string wrong = word_of_table(option, *table, words.emplace_back());
        if (!wrong.empty()) return wrong;
        continue;
      }
      const std::optional<std::string> word = word_of(element);
      if (!word) return "holds an element that is neither text nor a number";
      words.push_back(*word);
    }
    return "";
  }
  const std::optional<std::string> word = word_of(node);
  if (!word) return "is neither text nor a number";
  words.push_back(*word);
  return "";
}

// Whether bytes beyond ASCII are as UTF-8 has them; the last character may be cut off.
bool is_utf8(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at++]);
    if (lead < 0x80) continue;
    if (lead < 0xc2 || lead > 0xf4) return false;
    for (int more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3; more > 0 && at < text.size(); --more)
      if ((static_cast<unsigned char>(text[at++]) & 0xc0) != 0x80) return false;
  }
  return true;
}

// A line of a file, as a message shows it.
std::string line_of_text(const std::string& content, int64_t number) {
  size_t begin = 0;
  for (int64_t line = 1; line < number && begin != std::string::npos; ++line) {
    const size_t end = content.find('\n', begin);
    begin = end == std::string::npos ? end : end + 1;
  }
  if (begin == std::string::npos || begin >= content.size()) return "the file ends there";
  std::string text;
  for (const char c : content.substr(begin, std::min<size_t>(content.find('\n', begin) - begin, 80)))
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  if (!is_utf8(text))
    std::replace_if(
        text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; }, '?');
  return text.empty() ? "an empty line" : text;
}

std::string quoted_toml(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += std::string("\\") + c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += format_printf("\\u%04x", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// "ZeRO configurations" -> "zero_configurations"
std::string table_name(const std::string& group) {
  std::string name;
  for (const char c : group) {
    const bool is_upper = c >= 'A' && c <= 'Z', is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    name += is_upper ? static_cast<char>(c + 32) : is_plain ? c : '_';
  }
  return name;
}

}  // namespace

bool OptionTable::parse_toml(const std::string& content, const std::string& file_name, Problems& problems) {
  if (content.starts_with("\xff\xfe") || content.starts_with("\xfe\xff")) {
    problems.add(file_name, ": is UTF-16; expected UTF-8: iconv -f UTF-16 -t UTF-8 ", file_name, " > NEW converts it");
    return false;
  }
  toml::table table;
  try {
    table = parse_toml_text(content, file_name);
  } catch (const toml::parse_error& error) {
    const auto place = error.source().begin;
    problems.add(file_name, ":", place.line, ": not TOML from column ", place.column,
                 " on: ", line_of_text(content, place.line),
                 "\n    expected KEY = VALUE (text in \"quotes\"), [TABLE] or # comment");
    return false;
  }
  for (const char* key : {"source", "step"})
    if (const toml::node* node = table.get(key); node != nullptr && node->is_array_of_tables()) {
      problems.add(file_name, ":", node->source().begin.line, ": [[", key,
                   "]] belongs to a recipe of espalier curate, and this command takes one of options: KEY = VALUE");
      return false;
    }
  std::vector<Entry> entries;
  collect_entries(table, entries);
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.line < b.line; });
  std::map<const Option*, int64_t> line_of;
  for (const Entry& entry : entries) {
    const std::string place = concat(file_name, ":", entry.line);
    Option* option = find_row(entry.key, /*exact=*/true, nullptr);
    if (option == nullptr) {
      const std::string here = name_here(entry.key);
      excuse_neighbours(entry.key);
      problems.add(place, ": unknown key ", entry.key, here.empty() ? suggestion(entry.key, /*as_key=*/true) : here);
      continue;
    }
    const auto [first, is_first] = line_of.emplace(option, entry.line);
    Words words;
    const std::string wrong = words_of(*option, *entry.node, words);
    if (!is_first) {
      problems.add(place, ": ", entry.key, " was given before, in line ", first->second);
    } else if (!option->in_recipe()) {
      problems.add(place, ": ", entry.key, " belongs on the command line only, as ", option->name());
    } else if (!wrong.empty()) {
      problems.add(place, ": ", entry.key, " ", wrong);
    } else {
      assign(*option, words, place, problems);
    }
  }
  return true;
}

std::string Option::toml_value() const {
  const auto text_of = [this](const std::string& word) {
    const bool bare = kind_ != OptionKind::kText;
    return bare ? word : quoted_toml(word);
  };
  const Words words = values();
  if (!is_list_) return words.empty() ? "\"\"" : text_of(words[0]);
  Words parts;
  for (const std::string& word : words) parts.push_back(text_of(word));
  return "[" + join(parts, ", ") + "]";
}

std::string OptionTable::to_toml(const std::function<bool(const Option&)>& wanted) const {
  std::string text;
  for (const std::string& group : groups()) {
    std::string rows;
    for (const auto& option : options_) {
      if (option->group() != group || option->effect() != OptionEffect::kUsed || !option->in_recipe()) continue;
      if (!wanted(*option)) continue;
      if (option->values().empty() && option->default_values().empty()) continue;  // not set; there is no text for that
      rows += option->key() + " = " + option->toml_value() + "\n";
    }
    if (!rows.empty()) text += (text.empty() ? "[" : "\n[") + table_name(group) + "]\n" + rows;
  }
  return text;
}

}  // namespace espalier
