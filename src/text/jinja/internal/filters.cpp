#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/jinja/internal/calls.h"
#include "text/jinja/internal/values.h"
#include "text/python_text.h"

namespace espalier::text::jinja {
namespace {

constexpr int64_t kWidestIndent = 16;

// What is not a number is 0.
Json whole_number_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  Json read = value;
  if (value.is_string()) {
    std::string_view text = python::strip(value.get_ref<const std::string&>());
    const bool has_sign = text.starts_with('-') || text.starts_with('+');
    const size_t zeros = std::min(text.find_first_not_of('0', has_sign), text.size());
    if (zeros > has_sign && zeros < text.size() && text[zeros] >= '0' && text[zeros] <= '9') {
      if (has_sign) refuse(concat("int of ", shown(value)));
      text.remove_prefix(zeros);
    }
    try {
      read = python::parse_literal(text);
    } catch (const UserError&) {
      return 0;
    }
  }
  if (read.is_number_integer()) return read;
  if (!read.is_number_float() || !(std::abs(read.get<double>()) < 9e18)) return 0;
  return static_cast<int64_t>(read.get<double>());
}

Json mapped(const Json& value, const Arguments& arguments) {
  Json list = Json::array();
  const Json* const attribute = arguments.find("attribute", SIZE_MAX);
  const Json* const fallback = arguments.find("default", SIZE_MAX);
  Arguments rest = arguments;
  if (attribute == nullptr) rest.values.erase(rest.values.begin());
  for (const Json& entry : list_of(value, arguments.most)) {
    if (attribute == nullptr) {
      list.push_back(apply_filter(entry, arguments.values[0].get<std::string>(), rest));
      rest.most -= std::min(rest.most, weight_of(list.back()));
      continue;
    }
    const Json found = attribute_by_path(entry, string_of(*attribute, "attribute"));
    list.push_back(is_undefined(found) && fallback != nullptr ? *fallback : found);
  }
  return list;
}

Json selected(const Json& value, const std::string& name, const Arguments& arguments) {
  const size_t place = name.ends_with("attr") ? 1 : 0;
  const bool wanted = name.starts_with("select");
  Json list = Json::array();
  for (const Json& entry : list_of(value, arguments.most)) {
    const Json tried = place == 1 ? attribute_by_path(entry, string_of(arguments.values[0], name)) : entry;
    const std::vector<Json>& values = arguments.values;
    const bool passes = values.size() == place
                            ? is_true(tried)
                            : passes_test(tried, values[place].get<std::string>(),
                                          {values.begin() + static_cast<std::ptrdiff_t>(place) + 1, values.end()});
    if (passes == wanted) list.push_back(entry);
  }
  return list;
}

Json json_text(const Json& value, const Arguments& arguments) {
  const Json* const indent = arguments.find("indent", 0);
  if (indent == nullptr || indent->is_null()) return to_json(value, -1);
  if (!indent->is_number_integer() || *indent < 0 || *indent > kWidestIndent)
    refuse(concat("indent of tojson is a whole number up to ", kWidestIndent));
  return to_json(value, indent->get<int>());
}

Json or_default(const Json& value, const Arguments& arguments) {
  const Json* const fallback = arguments.find("default_value", 0);
  const Json* const by_truth = arguments.find("boolean", 1);
  const bool is_missing = is_undefined(value) || (by_truth != nullptr && is_true(*by_truth) && !is_true(value));
  return !is_missing ? value : fallback == nullptr ? Json("") : *fallback;
}

Json join_by(const Json& value, const Arguments& arguments) {
  const Json* const separator = arguments.find("d", 0);
  const Json* const attribute = arguments.find("attribute", 1);
  Json list = list_of(value, arguments.most);
  if (attribute != nullptr)
    for (Json& entry : list) entry = Json(attribute_by_path(entry, string_of(*attribute, "attribute")));
  return joined(list, separator == nullptr ? "" : text_of(*separator), arguments.most);
}

Json reversed(const Json& value, size_t most) {
  Json list = list_of(value, most);
  std::reverse(list.begin(), list.end());
  return value.is_string() ? joined(list, "", most) : list;
}

struct Count {
  const char* name;
  size_t most;
};
constexpr Count kMost[] = {{"join", 2},       {"map", 9},        {"select", 3}, {"reject", 3},
                           {"selectattr", 4}, {"rejectattr", 4}, {"trim", 1},   {"tojson", 1},
                           {"default", 2},    {"d", 2},          {"replace", 3}};

void check_count(const std::string& name, const Arguments& arguments) {
  const auto* const found =
      std::find_if(std::begin(kMost), std::end(kMost), [&](const Count& count) { return name == count.name; });
  check_arguments(name, arguments.values.size() + arguments.named.size(), name == "replace" ? 2 : 0,
                  found == std::end(kMost) ? 0 : found->most);
}

}  // namespace

Json attribute_by_path(const Json& value, const std::string& path) {
  const Json* found = &value;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    if (is_undefined(*found)) refuse(concat("there is no '", name, "' in ", shown(*found)));
    if (!found->is_object() || !found->contains(name)) {
      if (end == path.size()) return undefined();
      refuse(concat("there is no '", name, "' in ", shown(*found)));
    }
    found = &found->at(name);
    begin = end + 1;
  }
  return *found;
}

Json apply_filter(const Json& value, const std::string& name, const Arguments& arguments) {
  check_count(name, arguments);
  if (name == "join") return join_by(value, arguments);
  if (name == "map") return mapped(value, arguments);
  if (calls_by_name(name)) return selected(value, name, arguments);
  if (name == "tojson") return json_text(value, arguments);
  if (name == "default" || name == "d") return or_default(value, arguments);
  if (name == "list") return list_of(value, arguments.most);
  if (name == "reverse") return reversed(value, arguments.most);
  if (name == "items") return is_undefined(value) ? Json::array() : call_method(value, name, arguments);
  if (name == "int") return whole_number_of(value);
  if (name == "string" || name == "safe") return text_of(value);
  if (name == "trim") {
    const Json* const characters = arguments.find("chars", 0);
    return call_method(text_of(value), "strip",
                       {.values = {characters == nullptr ? Json() : *characters}, .named = {}, .most = arguments.most});
  }
  if (name == "replace" || name == "lower" || name == "upper" || name == "capitalize")
    return call_method(text_of(value), name, arguments);
  if (name == "length" || name == "count") {
    if (value.is_string()) return python::num_characters(value.get_ref<const std::string&>());
    if (!value.is_structured() && !is_undefined(value)) refuse(concat(name, " is not of ", shown(value)));
    return is_undefined(value) ? 0 : value.size();
  }
  const Json list = list_of(value, arguments.most);
  if (list.empty()) return undefined();
  return name == "first" ? list.front() : list.back();
}

}  // namespace espalier::text::jinja
