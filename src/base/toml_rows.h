// Tables of a TOML file that are the options of one thing each ([output], [[step]]), and messages that name their
// lines. A file that is one table of options is OptionTable::parse_toml's.
//
//   std::string content;
//   toml::table recipe;
//   if (!read_toml(file, content, recipe, problems)) return;
//   OptionTable rows("recipe", "");
//   rows.add("--keep", plan.keep, "share that is kept");
//   read_toml_rows(*recipe["filter"].as_table(), {file, "[filter]"}, rows, {}, problems);
//
// For sources only: it includes toml++.
#pragma once

#include <set>
#include <string>

#include "base/options.h"
#include "base/toml_text.h"

namespace espalier {

// False, with the reason among the problems, where the file cannot be read or is not TOML.
bool read_toml(const std::string& file, std::string& content, toml::table& table, Problems& problems);

int64_t toml_line(const toml::node& node);

// What messages call a table: "recipe.toml:7, [filter]: ...".
struct TomlPlace {
  std::string file, what;
};

// What the table says, but for the keys of `without`, into the rows; all problems say where.
void read_toml_keys(const toml::table& table, const TomlPlace& place, OptionTable& rows,
                    const std::set<std::string>& without, Problems& problems);

// The same of a table that has to say all that the rows require.
void read_toml_rows(const toml::table& table, const TomlPlace& place, OptionTable& rows,
                    const std::set<std::string>& without, Problems& problems);

// Adds a message about the table, unless it names a line of the file itself.
void add_toml_problem(const toml::table& table, const TomlPlace& place, const std::string& message, Problems& problems);

}  // namespace espalier
