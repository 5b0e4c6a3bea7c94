#include "convert/hf/internal/config_reader.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"

namespace espalier::convert {
namespace {

constexpr size_t kLongestValue = 80;

std::string shortened(const ConfigReader::Json& value) {
  std::string text = value.dump(-1, ' ', true, ConfigReader::Json::error_handler_t::replace);
  if (text.size() > kLongestValue) text = text.substr(0, kLongestValue) + "...";
  return text;
}

}  // namespace

const ConfigReader::Json* ConfigReader::find(const std::string& key) {
  seen_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::has(const std::string& key) { return find(key) != nullptr; }

void ConfigReader::expect(const std::string& key, const char* expected, const Json& found) {
  problem(key, "expected ", expected, ", found ", shortened(found));
}

std::optional<int64_t> ConfigReader::size(std::initializer_list<const char*> keys, int64_t most) {
  std::optional<int64_t> result;
  for (const char* key : keys) {
    const Json* value = find(key);
    if (value == nullptr || result) continue;
    if (!value->is_number_unsigned() || *value < 1 || *value > most)
      expect(key, concat("a size from 1 to ", most).c_str(), *value);
    else
      result = value->get<int64_t>();
  }
  return result;
}

int64_t ConfigReader::required_size(std::initializer_list<const char*> keys, int64_t most) {
  const size_t num_problems = problems_.messages().size();
  const std::optional<int64_t> found = size(keys, most);
  if (!found && problems_.messages().size() == num_problems) problem(*keys.begin(), "expected a size, found nothing");
  return found.value_or(0);
}

double ConfigReader::number(const std::string& key, double otherwise, double least, double most) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  const double found = value->is_number() ? value->get<double>() : std::nan("");
  if (found >= least && found <= most) return found;
  expect(key, concat("a number from ", format_shortest(least), " to ", format_shortest(most)).c_str(), *value);
  return otherwise;
}

bool ConfigReader::flag(const std::string& key, bool otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  expect(key, "true or false", *value);
  return otherwise;
}

std::string ConfigReader::text(const std::string& key, const std::string& otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_string()) return value->get<std::string>();
  expect(key, "a text", *value);
  return otherwise;
}

std::vector<double> ConfigReader::numbers(const std::string& key) {
  const Json* value = find(key);
  std::vector<double> result;
  if (value == nullptr) return result;
  const bool good = value->is_array() && std::all_of(value->begin(), value->end(), [](const Json& one) {
                      return one.is_number() && std::isfinite(one.get<double>());
                    });
  if (!good) expect(key, "a list of numbers", *value);
  if (good)
    for (const Json& one : *value) result.push_back(one.get<double>());
  return result;
}

std::vector<std::string> ConfigReader::texts(const std::string& key) {
  const Json* value = find(key);
  std::vector<std::string> result;
  if (value == nullptr) return result;
  const bool good =
      value->is_array() && std::all_of(value->begin(), value->end(), [](const Json& one) { return one.is_string(); });
  if (!good) expect(key, "a list of texts", *value);
  if (good)
    for (const Json& one : *value) result.push_back(one.get<std::string>());
  return result;
}

const ConfigReader::Json* ConfigReader::object(const std::string& key) {
  const Json* value = find(key);
  if (value == nullptr || value->is_object()) return value;
  expect(key, "an object", *value);
  return nullptr;
}

void ConfigReader::require(const std::string& key, const Json& value, const std::string& why) {
  const Json* found = find(key);
  if (found != nullptr && *found != value) problem(key, shortened(*found), " is not supported: ", why);
}

std::vector<std::string> ConfigReader::unread_keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items())
    if (!seen_.contains(key)) keys.push_back(key);
  return keys;
}

void check_architectures(ConfigReader& reader, const std::vector<std::string>& known,
                         const std::vector<std::string>& also) {
  const auto has = [](const std::vector<std::string>& list, const std::string& one) {
    return std::find(list.begin(), list.end(), one) != list.end();
  };
  for (const std::string& one : reader.texts("architectures"))
    if (!has(known, one) && !has(also, one))
      reader.problem("architectures", "'", one, "' is not supported; ", join(known, " and "),
                     known.size() == 1 ? " is" : " are");
}

}  // namespace espalier::convert
