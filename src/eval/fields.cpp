#include "eval/fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/format.h"

namespace espalier::eval {
namespace {

constexpr size_t kShownBytes = 60;

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

std::optional<int64_t> whole_number(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number_unsigned())
    return value.get<uint64_t>() <= INT64_MAX ? std::optional(value.get<int64_t>()) : std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.get_ref<const std::string&>();
  int64_t number = 0;
  const auto end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  return read.ec == std::errc() && read.ptr == end ? std::optional(number) : std::nullopt;
}

}  // namespace

const Json* Fields::find(const std::string& path) const {
  const Json* value = document_;
  for (const std::string& name : split(path, '.')) {
    if (!value->is_object() || !value->contains(name)) return nullptr;
    value = &value->at(name);
  }
  return value;
}

const Json& Fields::get(const std::string& path) const {
  const Json* value = find(path);
  if (value == nullptr) refuse(concat("field '", path, "' is missing"));
  return *value;
}

void Fields::refuse(const std::string& reason) const {
  throw UserError(concat(place_, ": ", reason), ExitCode::kBadData);
}

void Fields::refuse_type(const std::string& path, const char* wanted) const {
  refuse(concat("field '", path, "' is ", shown(get(path)), "; it should be ", wanted));
}

std::string Fields::text(const std::string& path) const {
  if (!get(path).is_string()) refuse_type(path, "a string");
  return get(path).get<std::string>();
}

std::vector<std::string> Fields::texts(const std::string& path) const {
  const Json& value = get(path);
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_string(); }))
    refuse_type(path, "a list of strings");
  return value.get<std::vector<std::string>>();
}

std::vector<Fields> Fields::objects(const std::string& path) const {
  const Json& value = get(path);
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_object(); }))
    refuse_type(path, "a list of objects");
  std::vector<Fields> objects;
  for (const Json& entry : value) objects.emplace_back(entry, concat(place_, ": ", path, " ", objects.size() + 1));
  return objects;
}

int64_t Fields::integer(const std::string& path, int64_t smallest, int64_t largest) const {
  const std::optional<int64_t> number = whole_number(get(path));
  if (!number || *number < smallest || *number > largest)
    refuse_type(path, concat("a whole number from ", smallest, " to ", largest).c_str());
  return *number;
}

double Fields::number(const std::string& path) const {
  const Json& value = get(path);
  if (value.is_number()) return value.get<double>();
  for (const auto& [name, special] : {std::pair{"-Infinity", -std::numeric_limits<double>::infinity()},
                                      {"NaN", std::numeric_limits<double>::quiet_NaN()}})
    if (value.is_string() && value.get_ref<const std::string&>() == name) return special;
  refuse_type(path, "a number");
}

int64_t Fields::label(const std::string& path, const std::vector<std::string>& names) const {
  const Json& value = get(path);
  if (value.is_string()) {
    const auto name = std::find(names.begin(), names.end(), value.get_ref<const std::string&>());
    if (name != names.end()) return name - names.begin();
  }
  const std::optional<int64_t> number = whole_number(value);
  if (!number || *number < 0 || *number >= static_cast<int64_t>(names.size()))
    refuse_type(path,
                concat("the number of a class from 0 to ", names.size() - 1, " (", join(names, ", "), ")").c_str());
  return *number;
}

}  // namespace espalier::eval
