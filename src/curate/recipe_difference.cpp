#include "curate/recipe_difference.h"

#include <map>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "base/toml_text.h"

namespace espalier::curate {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNamed = 3;

using Keys = std::map<std::string, std::string>;  // "[output] by" -> "\"language\""

std::string text_of(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& value) { text << value; });
  return text.str();
}

void add_table(const std::string& name, const toml::table& table, Keys& keys) {
  for (const auto& [key, value] : table) keys[concat(name, " ", std::string(key.str()))] = text_of(value);
}

// A list's tables are told apart by their names (sources) or by their numbers (steps, of which several may have one).
Keys keys_of(const toml::table& recipe) {
  Keys keys;
  for (const auto& [key, value] : recipe) {
    const std::string name(key.str());
    if (const toml::table* table = value.as_table()) add_table(concat("[", name, "]"), *table, keys);
    const toml::array* list = value.as_array();
    for (size_t at = 0; list != nullptr && at < list->size(); ++at)
      if (const toml::table* one = list->get(at)->as_table()) {
        const std::string called = (*one)["name"].value_or(std::string());
        add_table(name == "source" ? concat("[[source]] ", called, ":")
                                   : concat("[[", name, "]] ", at + 1, ", ", called, ":"),
                  *one, keys);
      }
  }
  return keys;
}

// The first of the files that were written later than the recipe's work began.
std::string newer_file(const Recipe& recipe, const fs::path& other) {
  std::error_code error;
  const auto then = fs::last_write_time(other, error);
  if (error) return "";
  std::vector<std::string> files = recipe.step_files;
  for (const InputSource& source : recipe.sources) files.insert(files.end(), source.files.begin(), source.files.end());
  for (const std::string& file : files)
    if (const auto time = fs::last_write_time(file, error); !error && time > then) return file;
  return "";
}

}  // namespace

std::string describe_difference(const Recipe& recipe, const fs::path& other) {
  std::error_code error;
  if (!fs::is_regular_file(other, error)) return "";
  Keys now, then;
  try {
    now = keys_of(parse_toml_text(recipe.content, recipe.file));
    then = keys_of(parse_toml_text(read_file(other), other));
  } catch (const toml::parse_error&) {
    return "";
  }
  std::vector<std::string> found;
  for (const auto& [key, value] : now) {
    const auto before = then.find(key);
    if (before == then.end())
      found.push_back(concat(key, " = ", value, " is new"));
    else if (before->second != value)
      found.push_back(concat(key, " = ", value, ", there it is ", before->second));
  }
  for (const auto& [key, value] : then)
    if (!now.contains(key)) found.push_back(concat(key, " = ", value, " is only there"));
  if (found.empty()) {
    const std::string file = newer_file(recipe, other);
    return file.empty() ? "the recipe says the same, but its inputs or the files that it names are others"
                        : concat("the recipe says the same, but ", file, " has changed since");
  }
  const size_t count = found.size();
  if (count > kMostNamed) found.resize(kMostNamed);
  return join(found, "; ") + (count > kMostNamed ? concat("; and ", count - kMostNamed, " more") : "");
}

}  // namespace espalier::curate
