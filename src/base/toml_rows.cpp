#include "base/toml_rows.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/file.h"

namespace espalier {
namespace {

// The keys of a table as a text of its own, each in the line where the file has it, so that messages name that line.
std::string with_lines(const toml::table& table, const std::set<std::string>& without) {
  struct Row {
    int64_t line;
    std::string text;
  };
  std::vector<Row> rows;
  for (const auto& [key, node] : table) {
    if (without.contains(std::string(key.str()))) continue;
    std::ostringstream text;
    text << toml::table{{key.str(), node}};
    std::string words = text.str();
    std::replace(words.begin(), words.end(), '\n', ' ');
    rows.push_back({static_cast<int64_t>(key.source().begin.line), words});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.line < b.line; });
  std::string all;
  int64_t line = 1;
  for (const Row& row : rows) {
    for (; line < row.line; ++line) all += '\n';
    all += row.text + "\n";
    ++line;
  }
  return all;
}

}  // namespace

bool read_toml(const std::string& file, std::string& content, toml::table& table, Problems& problems) {
  try {
    content = read_file(file);
    table = parse_toml_text(content, file);
    return true;
  } catch (const toml::parse_error& error) {
    problems.add(file, ":", error.source().begin.line, ": not TOML: ", std::string(error.description()));
  } catch (const UserError& error) {
    problems.add(error.what());
  }
  return false;
}

int64_t toml_line(const toml::node& node) { return static_cast<int64_t>(node.source().begin.line); }

void read_toml_keys(const toml::table& table, const TomlPlace& place, OptionTable& rows,
                    const std::set<std::string>& without, Problems& problems) {
  rows.say_notes(false);
  rows.parse_toml(with_lines(table, without), place.file, problems);
}

void read_toml_rows(const toml::table& table, const TomlPlace& place, OptionTable& rows,
                    const std::set<std::string>& without, Problems& problems) {
  Problems found;
  read_toml_keys(table, place, rows, without, found);
  rows.parse({}, found);
  for (const std::string& message : found.messages()) add_toml_problem(table, place, message, problems);
}

void add_toml_problem(const toml::table& table, const TomlPlace& place, const std::string& message,
                      Problems& problems) {
  if (message.starts_with(place.file))
    problems.add(message);
  else
    problems.add(place.file, ":", toml_line(table), ", ", place.what, ": ", message);
}

}  // namespace espalier
