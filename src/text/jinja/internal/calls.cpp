#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "text/jinja/internal/node.h"
#include "text/python_literal.h"
#include "text/python_text.h"

namespace espalier::text::jinja {
using namespace python;  // NOLINT(google-build-using-namespace): strings here are those of Python
namespace {

using Arguments = std::vector<Json>;

[[noreturn]] void refuse(const std::string& what) { throw UserError(what, ExitCode::kBadData); }

const std::string& text_of(const Json& value, const std::string& what) {
  if (!value.is_string()) refuse(concat(what, " is of a string, not of ", python_repr(value).substr(0, 60)));
  return value.get_ref<const std::string&>();
}

void check_count(const std::string& name, const Arguments& arguments, size_t least, size_t most) {
  if (arguments.size() < least || arguments.size() > most)
    refuse(concat(name, " takes ", least, least == most ? "" : concat(" to ", most), " arguments, not ",
                  arguments.size()));
}

Json join(const Json& list, const std::string& separator) {
  if (!list.is_array()) refuse(concat("join is of a list, not of ", python_repr(list).substr(0, 60)));
  std::string text;
  for (size_t i = 0; i < list.size(); ++i) text += (i == 0 ? "" : separator) + python_str(list[i]);
  return text;
}

Json strip_by(const std::string& name, const std::string& text, const Arguments& arguments) {
  std::string_view kept = text;
  if (arguments.empty() || arguments[0].is_null())
    return std::string(name == "lstrip" ? strip_left(text) : name == "rstrip" ? strip_right(text) : strip(text));
  const std::string& characters = text_of(arguments[0], "an argument of " + name);
  if (std::any_of(characters.begin(), characters.end(), [](char c) { return static_cast<uint8_t>(c) >= 0x80; }))
    refuse(name + " takes ASCII characters alone");
  if (name != "rstrip") kept = kept.substr(std::min(kept.find_first_not_of(characters), kept.size()));
  return std::string(name == "lstrip" ? kept : strip_right(kept, characters));
}

Json split_by(const std::string& text, const Arguments& arguments) {
  Json parts = Json::array();
  if (arguments.empty() || arguments[0].is_null()) {
    for (const std::string_view word : split_words(text)) parts.push_back(std::string(word));
    return parts;
  }
  const std::string& separator = text_of(arguments[0], "an argument of split");
  if (separator.empty()) refuse("split takes no empty separator");
  const int64_t most = arguments.size() == 2 && arguments[1].is_number_integer() ? arguments[1].get<int64_t>() : -1;
  size_t begin = 0;
  for (size_t end;
       (end = text.find(separator, begin)) != std::string::npos && most != static_cast<int64_t>(parts.size());
       begin = end + separator.size())
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

Json index_of(const Json& target, const Json& wanted) {
  if (target.is_array()) {
    const auto found =
        std::find_if(target.begin(), target.end(), [&](const Json& entry) { return is_equal(entry, wanted); });
    if (found == target.end()) refuse(concat(python_repr(wanted), " is not in ", python_repr(target).substr(0, 80)));
    return found - target.begin();
  }
  const std::string& text = text_of(target, "index");
  const size_t place = text.find(text_of(wanted, "an argument of index"));
  if (place == std::string::npos) refuse(concat(python_repr(wanted), " is not in ", python_repr(target).substr(0, 80)));
  return num_characters(std::string_view(text).substr(0, place));
}

struct Count {
  size_t least, most;
};
const std::map<std::string, Count> kMethods = {
    {"strip", {0, 1}},      {"lstrip", {0, 1}},   {"rstrip", {0, 1}},     {"split", {0, 2}},
    {"replace", {2, 2}},    {"lower", {0, 0}},    {"capitalize", {0, 0}}, {"join", {1, 1}},
    {"startswith", {1, 1}}, {"endswith", {1, 1}}, {"index", {1, 1}},
};
const std::map<std::string, Count> kFilters = {
    {"join", {0, 1}}, {"list", {0, 0}},    {"map", {0, 0}},   {"length", {0, 0}}, {"count", {0, 0}},  {"first", {0, 0}},
    {"last", {0, 0}}, {"replace", {2, 2}}, {"lower", {0, 0}}, {"trim", {0, 0}},   {"string", {0, 0}}, {"int", {0, 0}},
};

Json list_of(const Json& value) {
  if (value.is_array()) return value;
  Json list = Json::array();
  const std::string& text = text_of(value, "list");
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view first = slice(rest, 0, 1);
    list.push_back(std::string(first));
    rest.remove_prefix(first.size());
  }
  return list;
}

Json by_attribute(const Json& list, const std::string& path) {
  if (!list.is_array()) refuse(concat("map is of a list, not of ", python_repr(list).substr(0, 60)));
  Json mapped = Json::array();
  for (const Json& entry : list) {
    const Json* value = &entry;
    for (size_t begin = 0; begin <= path.size();) {
      const size_t end = std::min(path.find('.', begin), path.size());
      value = &template_attribute(*value, path.substr(begin, end - begin));
      begin = end + 1;
    }
    mapped.push_back(*value);
  }
  return mapped;
}

// What is no number is 0.
Json whole_number_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  Json read = value;
  if (value.is_string()) {
    std::string_view text = strip(value.get_ref<const std::string&>());
    const bool has_sign = text.starts_with('-') || text.starts_with('+');
    const size_t zeros = std::min(text.find_first_not_of('0', has_sign), text.size());
    if (zeros > has_sign && zeros < text.size() && text[zeros] >= '0' && text[zeros] <= '9') {
      if (has_sign) refuse(concat("int of ", python_repr(value).substr(0, 60)));
      text.remove_prefix(zeros);
    }
    try {
      read = parse_literal(text);
    } catch (const UserError&) {
      return 0;
    }
  }
  if (read.is_number_integer()) return read;
  if (!read.is_number_float() || !(std::abs(read.get<double>()) < 9e18)) return 0;
  return static_cast<int64_t>(read.get<double>());
}

}  // namespace

bool is_equal(const Json& left, const Json& right) {
  if (left.is_boolean() && right.is_number()) return Json(left.get<bool>() ? 1 : 0) == right;
  if (left.is_number() && right.is_boolean()) return is_equal(right, left);
  if (!left.is_array() || !right.is_array()) return left == right;
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), is_equal);
}

bool is_template_method(const std::string& name) { return kMethods.contains(name); }
bool is_template_filter(const std::string& name) { return kFilters.contains(name); }

const Json& template_attribute(const Json& value, const std::string& name) {
  // Of these a dict gives the method.
  static const std::set<std::string> kMethodsOfDicts = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                                        "pop",   "popitem", "setdefault", "update", "values"};
  if (!value.is_object() || !value.contains(name))
    refuse(concat("there is no '", name, "' in ", python_repr(value).substr(0, 80)));
  if (kMethodsOfDicts.contains(name)) refuse(concat("'.", name, "' is a method of Python; write ['", name, "']"));
  return value.at(name);
}

Json call_template_method(const Json& target, const std::string& name, const Arguments& arguments) {
  check_count(name, arguments, kMethods.at(name).least, kMethods.at(name).most);
  if (name == "index") return index_of(target, arguments[0]);
  const std::string& text = text_of(target, name);
  if (name.ends_with("strip")) return strip_by(name, text, arguments);
  if (name == "split") return split_by(text, arguments);
  if (name == "lower") return lowercase(text);
  if (name == "capitalize") return capitalize(text);
  if (name == "join") return join(arguments[0], text);
  const std::string& first = text_of(arguments[0], "an argument of " + name);
  if (name == "startswith") return text.starts_with(first);
  if (name == "endswith") return text.ends_with(first);
  if (first.empty()) refuse("replace takes no empty text");
  return replace_all(text, first, text_of(arguments[1], "an argument of replace"));
}

Json apply_template_filter(const Json& value, const std::string& name, const Arguments& arguments,
                           const std::string& attribute) {
  check_count(name, arguments, kFilters.at(name).least, kFilters.at(name).most);
  if (name == "join") return join(value, arguments.empty() ? "" : text_of(arguments[0], "an argument of join"));
  if (name == "map") return by_attribute(value, attribute);
  if (name == "list") return list_of(value);
  if (name == "string") return python_str(value);
  if (name == "int") return whole_number_of(value);
  if (name == "trim") return std::string(strip(text_of(value, name)));
  if (name == "lower") return lowercase(text_of(value, name));
  if (name == "replace") return call_template_method(value, name, arguments);
  if (name == "length" || name == "count") return value.is_object() ? value.size() : list_of(value).size();
  const Json list = list_of(value);
  if (list.empty()) refuse(name + " of an empty list");
  return name == "first" ? list.front() : list.back();
}

}  // namespace espalier::text::jinja
