#include "text/jinja/internal/values.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/python_text.h"
#include "text/utf8.h"

namespace espalier::text::jinja {
namespace {

constexpr int kDeepestValue = 64;
constexpr size_t kSizeOfCharacter = 64;            // about, as an entry of a list
const char* const kIsNamespace = "\x01namespace";  // no name of a template

[[noreturn]] void refuse_operands(const std::string& name, const Json& left, const Json& right) {
  refuse(concat(shown(left), " ", name, " ", shown(right), " has no meaning"));
}

// True and False are 1 and 0 next to a number.
Json as_number(const Json& value) { return value.is_boolean() ? Json(value.get<bool>() ? 1 : 0) : value; }

Json whole_arithmetic(const std::string& name, int64_t a, int64_t b) {
  int64_t result = 0;
  bool fails = false;
  if (name == "%" || name == "//") {
    fails = b == 0 || (a == INT64_MIN && b == -1);
    if (!fails) {
      const int64_t rest = a % b, adjusted = rest != 0 && (rest < 0) != (b < 0);
      result = name == "%" ? rest + adjusted * b : a / b - adjusted;
    }
  } else {
    fails = name == "+"   ? __builtin_add_overflow(a, b, &result)
            : name == "-" ? __builtin_sub_overflow(a, b, &result)
                          : __builtin_mul_overflow(a, b, &result);
  }
  if (fails) refuse_operands(name, a, b);
  return result;
}

Json arithmetic(const std::string& name, const Json& left, const Json& right) {
  if (name == "~") return text_of(left) + text_of(right);
  if (left.is_boolean() || right.is_boolean()) return arithmetic(name, as_number(left), as_number(right));
  if (left.is_number_integer() && right.is_number_integer())
    return whole_arithmetic(name, left.get<int64_t>(), right.get<int64_t>());
  if (left.is_number() && right.is_number() && name != "%" && name != "//") {
    const auto a = left.get<double>(), b = right.get<double>();
    return name == "+" ? a + b : name == "-" ? a - b : a * b;
  }
  if (name == "+" && left.is_string() && right.is_string()) return left.get<std::string>() + right.get<std::string>();
  if (name == "+" && left.is_array() && right.is_array()) {
    Json both = left;
    both.insert(both.end(), right.begin(), right.end());
    return both;
  }
  refuse_operands(name, left, right);
}

bool is_inside(const Json& left, const Json& right) {
  if (right.is_string() && left.is_string())
    return found_at(right.get_ref<const std::string&>(), left.get_ref<const std::string&>(), 0) != std::string::npos;
  if (right.is_object()) return left.is_string() && right.contains(left.get_ref<const std::string&>());
  if (right.is_array())
    return std::any_of(right.begin(), right.end(), [&](const Json& entry) { return is_equal(entry, left); });
  if (is_undefined(right)) return false;
  refuse_operands("in", left, right);
}

Json compare(const std::string& name, const Json& left, const Json& right) {
  if (left.is_boolean() || right.is_boolean()) return compare(name, as_number(left), as_number(right));
  const bool comparable = (left.is_number() && right.is_number()) || (left.is_string() && right.is_string());
  if (!comparable) refuse_operands(name, left, right);
  return name == "<" ? left < right : name == ">" ? left > right : name == "<=" ? left <= right : left >= right;
}

void append_json_text(std::string& out, const std::string& text) {
  static constexpr std::string_view kNames = "\"\\nrtbf", kValues = "\"\\\n\r\t\b\f";
  out += '"';
  for (const char c : text) {
    if (const size_t place = kValues.find(c); place != std::string_view::npos) {
      (out += '\\') += kNames[place];
    } else if (static_cast<uint8_t>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_json(std::string& out, const Json& value, int indent, int level) {
  const auto line = [&](int at) {
    if (indent >= 0) (out += '\n').append(static_cast<size_t>(indent * at), ' ');
  };
  if (is_undefined(value)) refuse("tojson of what is undefined");
  if (value.is_string()) return append_json_text(out, value.get_ref<const std::string&>());
  if (value.is_boolean()) {
    out += value.get<bool>() ? "true" : "false";
  } else if (value.is_null()) {
    out += "null";
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    out += std::isnan(number)   ? "NaN"
           : std::isinf(number) ? (number < 0 ? "-Infinity" : "Infinity")
                                : python::repr(number);
  } else if (!value.is_structured()) {
    out += value.dump();
  } else {
    const bool is_list = value.is_array();
    out += is_list ? '[' : '{';
    bool first = true;
    for (const auto& [key, entry] : value.items()) {
      if (!first) out += indent >= 0 ? "," : ", ";
      first = false;
      line(level + 1);
      if (!is_list) append_json_text(out, key);
      if (!is_list) out += ": ";
      append_json(out, entry, indent, level + 1);
    }
    if (!first) line(level);
    out += is_list ? ']' : '}';
  }
}

}  // namespace

void refuse(const std::string& what) { throw UserError(what, ExitCode::kBadData); }

bool is_true(const Json& value) {
  if (value.is_null() || is_undefined(value)) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

bool is_equal(const Json& left, const Json& right) {
  if (is_undefined(left) || is_undefined(right)) return is_undefined(left) && is_undefined(right);
  if (left.is_boolean() && right.is_number()) return Json(left.get<bool>() ? 1 : 0) == right;
  if (left.is_number() && right.is_boolean()) return is_equal(right, left);
  if (left.is_object() && right.is_object())  // in any order
    return left.size() == right.size() && std::all_of(left.items().begin(), left.items().end(), [&](const auto& entry) {
             return right.contains(entry.key()) && is_equal(entry.value(), right.at(entry.key()));
           });
  if (!left.is_array() || !right.is_array()) return left == right;
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), is_equal);
}

std::string text_of(const Json& value) { return is_undefined(value) ? "" : python::python_str(value); }

std::string shown(const Json& value, size_t size) {
  if (is_undefined(value)) return "what is undefined";
  const std::string whole = python::python_repr(value);
  return whole.substr(0, valid_utf8_prefix(std::string_view(whole).substr(0, size)));
}

Json made_namespace(const std::vector<std::pair<std::string, Json>>& fields) {
  Json made = {{kIsNamespace, true}};
  for (const auto& [name, value] : fields) made[name] = value;
  return made;
}

bool is_namespace(const Json& value) { return value.is_object() && value.contains(kIsNamespace); }

Json list_of(const Json& value, size_t most) {
  if (value.is_array()) return value;
  Json list = Json::array();
  if (is_undefined(value)) return list;
  if (value.is_object()) {
    for (const auto& entry : value.items()) list.push_back(entry.key());
    return list;
  }
  if (!value.is_string()) refuse(concat(shown(value), " is not a list"));
  if (value.get_ref<const std::string&>().size() > most / kSizeOfCharacter)
    refuse("the template takes too much memory");
  for (std::string_view rest = value.get_ref<const std::string&>(); !rest.empty();) {
    const std::string_view first = python::slice(rest, 0, 1);
    list.push_back(std::string(first));
    rest.remove_prefix(first.size());
  }
  return list;
}

Json binary_operation(const std::string& name, const Json& left, const Json& right) {
  if (name == "==") return is_equal(left, right);
  if (name == "!=") return !is_equal(left, right);
  if (name == "in") return is_inside(left, right);
  return name == "<" || name == ">" || name == "<=" || name == ">=" ? compare(name, left, right)
                                                                    : arithmetic(name, left, right);
}

Json negative(const Json& value) { return arithmetic("-", 0, value); }

Json sliced(const Json& value, const Json& first, const Json& last, const Json& step) {
  for (const Json* const end : {&first, &last, &step})
    if (!end->is_null() && !end->is_number_integer()) refuse("the ends of [from:to] are whole numbers");
  if (!value.is_string() && !value.is_array()) refuse_operands("[from:to]", value, first);
  if (value.is_string() && (step.is_null() || step == 1))
    return std::string(python::slice(value.get_ref<const std::string&>(), first.is_null() ? 0 : first.get<int64_t>(),
                                     last.is_null() ? INT64_MAX : last.get<int64_t>()));
  const Json& whole = value.is_string() ? list_of(value) : value;
  const auto size = static_cast<int64_t>(whole.size());
  const int64_t by = step.is_null() ? 1 : std::clamp(step.get<int64_t>(), -size - 1, size + 1);
  if (by == 0) refuse("a slice does not accept a step of 0");
  const int64_t least = by > 0 ? 0 : -1, most = by > 0 ? size : size - 1;
  const auto place = [&](const Json& end, int64_t fallback) {
    if (end.is_null()) return fallback;
    const auto at = end.get<int64_t>();
    return std::clamp(at < 0 ? at + size : at, least, most);
  };
  const int64_t begin = place(first, by > 0 ? 0 : size - 1), end = place(last, by > 0 ? size : -1);
  Json part = Json::array();
  for (int64_t i = begin; by > 0 ? i < end : i > end; i += by) part.push_back(whole[static_cast<size_t>(i)]);
  if (value.is_array()) return part;
  std::string text;
  for (const Json& character : part) text += character.get_ref<const std::string&>();
  return text;
}

std::string to_json(const Json& value, int indent) {
  std::string out;
  append_json(out, value, indent, 0);
  return out;
}

size_t weight_of(const Json& value, int depth) {
  if (depth > kDeepestValue) refuse("a value of too much nesting");
  size_t weight = 16;
  if (value.is_string()) weight += 32 + value.get_ref<const std::string&>().size();
  if (value.is_array())
    for (const Json& entry : value) weight += weight_of(entry, depth + 1);
  if (value.is_object())
    for (const auto& entry : value.items()) weight += 16 + entry.key().size() + weight_of(entry.value(), depth + 1);
  return weight;
}

}  // namespace espalier::text::jinja
