#include "serve/fields.h"

#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "serve/api_error.h"

namespace espalier::serve {
namespace {

nlohmann::json parsed(const std::string& body) {
  try {
    return parse_json(body, "the body");
  } catch (const UserError& error) {
    throw ApiError(400, error.what());
  }
}

std::optional<int64_t> as_integer(const nlohmann::json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max()) return std::nullopt;
  if (!value.is_number_integer()) return std::nullopt;
  return value.get<int64_t>();
}

std::optional<int32_t> as_id(const nlohmann::json& value) {
  const std::optional<int64_t> number = as_integer(value);
  if (!number || *number < 0 || *number > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return static_cast<int32_t>(*number);
}

}  // namespace

Fields::Fields(const std::string& body) : body_(parsed(body)) {
  if (!body_.is_object()) throw ApiError(400, "the body is not a JSON object");
}

const nlohmann::json* Fields::find(const std::string& name) {
  known_.insert(name);
  const auto found = body_.find(name);
  return found == body_.end() || found->is_null() ? nullptr : &*found;
}

bool Fields::boolean(const std::string& name, bool fallback) {
  const nlohmann::json* const value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) problem(name, "is not true or false");
  return value->is_boolean() ? value->get<bool>() : fallback;
}

std::optional<int64_t> Fields::integer(const std::string& name, int64_t least, int64_t most) {
  const nlohmann::json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = as_integer(*value);
  if (number && *number >= least && *number <= most) return number;
  problem(name, most == std::numeric_limits<int64_t>::max() ? concat("is not an integer of at least ", least)
                                                            : concat("is not an integer from ", least, " to ", most));
  return std::nullopt;
}

double Fields::number(const std::string& name, double fallback, double least, double most) {
  const nlohmann::json* const value = find(name);
  if (value == nullptr) return fallback;
  const double number = value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (number >= least && number <= most) return number;
  problem(name, concat("is not a number from ", least, " to ", most));
  return fallback;
}

std::string Fields::text(const std::string& name, const std::string& fallback) {
  const nlohmann::json* const value = find(name);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get<std::string>();
  problem(name, "is not a text");
  return fallback;
}

std::vector<std::string> Fields::texts(const std::string& name) {
  const nlohmann::json* const value = find(name);
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  if (value->is_string()) return {value->get<std::string>()};
  bool is_good = value->is_array();
  if (is_good)
    for (const nlohmann::json& element : *value) {
      is_good = is_good && element.is_string();
      if (is_good) texts.push_back(element.get<std::string>());
    }
  if (!is_good) problem(name, "is not a text or a list of texts");
  return texts;
}

std::vector<int32_t> Fields::ids(const std::string& name) {
  const nlohmann::json* const value = find(name);
  std::vector<int32_t> ids;
  if (value == nullptr) return ids;
  bool is_good = value->is_array();
  if (is_good)
    for (const nlohmann::json& element : *value) {
      const std::optional<int32_t> id = as_id(element);
      is_good = is_good && id.has_value();
      if (is_good) ids.push_back(*id);
    }
  if (!is_good) problem(name, "is not a list of token ids");
  return ids;
}

void Fields::ignore(std::initializer_list<const char*> names) {
  for (const char* const name : names) known_.insert(name);
}

void Fields::refuse(const std::string& name, const std::string& why) {
  const nlohmann::json* const value = find(name);
  if (value == nullptr || (value->is_boolean() && !value->get<bool>())) return;
  if ((value->is_array() || value->is_object()) && value->empty()) return;
  problem(name, why);
}

void Fields::problem(const std::string& name, const std::string& message) { problems_.push_back({name, message}); }

void Fields::finish() {
  for (const auto& [name, value] : body_.items()) {
    if (known_.contains(name)) continue;
    const std::vector<std::string> near = nearest_names(name, {known_.begin(), known_.end()});
    problem(name.substr(0, 64),
            near.empty() ? "is not a known field" : "is not a known field; did you mean " + near.front() + "?");
    if (problems_.size() > 8) break;
  }
  if (problems_.empty()) return;
  std::string message;
  for (const auto& [name, what] : problems_) message += concat(message.empty() ? "" : "; ", name, " ", what);
  throw ApiError(400, message, problems_.front().first);
}

}  // namespace espalier::serve
