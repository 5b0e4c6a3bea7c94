#include "text/jinja/template.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "text/jinja/internal/node.h"
#include "text/python_literal.h"
#include "text/python_text.h"

namespace espalier::text {
namespace jinja {
using namespace python;  // NOLINT(google-build-using-namespace): strings here are those of Python
namespace {

[[noreturn]] void refuse_operands(const std::string& name, const Json& left, const Json& right) {
  throw UserError(
      concat(python_repr(left).substr(0, 60), " ", name, " ", python_repr(right).substr(0, 60), " has no meaning"),
      ExitCode::kBadData);
}

// What Python takes for true.
bool is_true(const Json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

// True and False are 1 and 0 beside a number.
Json as_number(const Json& value) { return value.is_boolean() ? Json(value.get<bool>() ? 1 : 0) : value; }

Json arithmetic(const std::string& name, const Json& left, const Json& right) {
  if (name == "~") return python_str(left) + python_str(right);
  if (left.is_boolean() || right.is_boolean()) return arithmetic(name, as_number(left), as_number(right));
  if (left.is_number_integer() && right.is_number_integer()) {
    const auto a = left.get<int64_t>(), b = right.get<int64_t>();
    int64_t result = 0;
    const bool overflows = name == "+"   ? __builtin_add_overflow(a, b, &result)
                           : name == "-" ? __builtin_sub_overflow(a, b, &result)
                                         : __builtin_mul_overflow(a, b, &result);
    if (overflows) refuse_operands(name, left, right);
    return result;
  }
  if (left.is_number() && right.is_number()) {
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

Json compare(const std::string& name, const Json& left, const Json& right) {
  if (name == "==") return is_equal(left, right);
  if (name == "!=") return !is_equal(left, right);
  if (name == "in") {
    if (right.is_string() && left.is_string())
      return right.get_ref<const std::string&>().find(left.get_ref<const std::string&>()) != std::string::npos;
    if (right.is_object() && left.is_string()) return right.contains(left.get_ref<const std::string&>());
    if (right.is_array())
      return std::any_of(right.begin(), right.end(), [&](const Json& entry) { return is_equal(entry, left); });
    refuse_operands(name, left, right);
  }
  if (left.is_boolean() || right.is_boolean()) return compare(name, as_number(left), as_number(right));
  const bool comparable = (left.is_number() && right.is_number()) || (left.is_string() && right.is_string());
  if (!comparable) refuse_operands(name, left, right);
  return name == "<" ? left < right : name == ">" ? left > right : name == "<=" ? left <= right : left >= right;
}

Json binary(const TemplateNode& node, const Json& document) {
  const Json left = evaluate(node.parts[0], document);
  if (node.name == "or") return is_true(left) ? left : evaluate(node.parts[1], document);
  if (node.name == "and") return is_true(left) ? evaluate(node.parts[1], document) : left;
  const Json right = evaluate(node.parts[1], document);
  const bool is_arithmetic = node.name == "+" || node.name == "-" || node.name == "*" || node.name == "~";
  return is_arithmetic ? arithmetic(node.name, left, right) : compare(node.name, left, right);
}

Json item(const Json& value, const Json& index) {
  if (index.is_boolean()) return item(value, as_number(index));
  if (index.is_string()) {
    const std::string& name = index.get_ref<const std::string&>();
    if (value.is_object() && value.contains(name)) return value.at(name);
  } else if (index.is_number_integer() && (value.is_array() || value.is_string())) {
    const auto place = index.get<int64_t>();
    const int64_t size =
        value.is_array() ? static_cast<int64_t>(value.size()) : num_characters(value.get_ref<const std::string&>());
    const int64_t from_begin = place < 0 ? place + size : place;
    if (from_begin >= 0 && from_begin < size)
      return value.is_array()
                 ? value[static_cast<size_t>(from_begin)]
                 : Json(std::string(slice(value.get_ref<const std::string&>(), from_begin, from_begin + 1)));
  }
  throw UserError(concat("there is no ", python_repr(index), " in ", python_repr(value).substr(0, 80)),
                  ExitCode::kBadData);
}

Json sliced(const Json& value, const Json& first, const Json& last) {
  if (!(first.is_null() || first.is_number_integer()) || !(last.is_null() || last.is_number_integer()))
    throw UserError("the ends of [from:to] are whole numbers", ExitCode::kBadData);
  int64_t begin = first.is_null() ? 0 : first.get<int64_t>(), end = last.is_null() ? INT64_MAX : last.get<int64_t>();
  if (value.is_string()) return std::string(slice(value.get_ref<const std::string&>(), begin, end));
  if (!value.is_array()) refuse_operands("[from:to]", value, first);
  const auto size = static_cast<int64_t>(value.size());
  begin = std::clamp<int64_t>(begin < 0 ? begin + size : begin, 0, size);
  end = std::clamp<int64_t>(end < 0 ? end + size : end, 0, size);
  Json part = Json::array();
  for (int64_t i = begin; i < end; ++i) part.push_back(value[static_cast<size_t>(i)]);
  return part;
}

std::vector<Json> arguments_of(const TemplateNode& node, const Json& document) {
  std::vector<Json> arguments;
  for (size_t i = 1; i < node.parts.size(); ++i) arguments.push_back(evaluate(node.parts[i], document));
  return arguments;
}

}  // namespace

Json evaluate(const TemplateNode& node, const Json& document) {
  const auto part = [&](size_t i) { return evaluate(node.parts[i], document); };
  switch (node.op) {
    case TemplateOp::kValue: return node.value;
    case TemplateOp::kName:
      if (!document.contains(node.name))
        throw UserError(concat("field '", node.name, "' is missing"), ExitCode::kBadData);
      return document.at(node.name);
    case TemplateOp::kList: {
      Json list = Json::array();
      for (size_t i = 0; i < node.parts.size(); ++i) list.push_back(part(i));
      return list;
    }
    case TemplateOp::kAttribute: return template_attribute(part(0), node.name);
    case TemplateOp::kItem: return item(part(0), part(1));
    case TemplateOp::kSlice: return sliced(part(0), part(1), part(2));
    case TemplateOp::kMethod: return call_template_method(part(0), node.name, arguments_of(node, document));
    case TemplateOp::kFilter:
      return apply_template_filter(part(0), node.name, arguments_of(node, document),
                                   node.value.is_string() ? node.value.get<std::string>() : "");
    case TemplateOp::kNot: return !is_true(part(0));
    case TemplateOp::kMinus: return arithmetic("-", 0, part(0));
    case TemplateOp::kBinary: return binary(node, document);
    case TemplateOp::kChoice: return is_true(part(0)) ? part(1) : part(2);
  }
  return {};
}

}  // namespace jinja

namespace {

// Where the end of a tag is, from `begin` on; in a string of an expression there is none.
size_t end_of_tag(std::string_view text, size_t begin, char kind) {
  if (kind != '{') return text.find(kind == '%' ? "%}" : "#}", begin);
  for (size_t at = begin; at < text.size(); ++at) {
    if (text.substr(at).starts_with("}}")) return at;
    if (const char quote = text[at]; quote == '\'' || quote == '"')
      for (++at; at < text.size() && text[at] != quote; ++at) at += text[at] == '\\';
  }
  return std::string_view::npos;
}

// Where a tag begins: "{{", "{%" or "{#".
size_t begin_of_tag(std::string_view text) {
  size_t open = text.find('{');
  while (open != std::string_view::npos &&
         (open + 1 >= text.size() || std::string_view("{%#").find(text[open + 1]) == std::string_view::npos))
    open = text.find('{', open + 1);
  return open;
}

}  // namespace

struct Template::Part {
  std::string text;  // before the expression
  std::optional<jinja::TemplateNode> expression;
};

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;

Template::Template(std::string_view text, const std::string& origin) : origin_(origin) {
  const std::string source = python::replace_all(python::replace_all(text, "\r\n", "\n"), "\r", "\n");
  std::string_view rest = source;
  bool strips_next = false;
  const auto fail = [&](const std::string& what) { throw UserError(origin + ": " + what, ExitCode::kBadData); };
  for (;;) {
    const size_t open = begin_of_tag(rest);
    std::string_view before = rest.substr(0, open);
    if (strips_next) before = python::strip_left(before);
    if (open == std::string_view::npos) {
      parts_.push_back({std::string(before), std::nullopt});
      return;
    }
    const char kind = rest[open + 1];
    const size_t close = end_of_tag(rest, open + 2, kind);
    if (close == std::string_view::npos) fail(concat("'", rest.substr(open, 60), "' has no end"));
    std::string_view inside = rest.substr(open + 2, close - open - 2);
    if (kind == '%')
      fail(concat("the statement '", rest.substr(open, close + 2 - open), "' of a template is not taken"));
    if (inside.starts_with('-')) before = python::strip_right(before);
    if (inside.starts_with('-') || inside.starts_with('+')) inside.remove_prefix(1);
    strips_next = inside.ends_with('-');
    if (strips_next) inside.remove_suffix(1);
    parts_.push_back({std::string(before), std::nullopt});
    if (kind == '{') {
      try {
        parts_.back().expression = jinja::parse_template_expression(inside);
      } catch (const UserError& error) {
        fail(error.what());
      }
    }
    rest.remove_prefix(close + 2);
  }
}

std::string Template::render(const python::Json& document) const {
  std::string text;
  for (const Part& part : parts_) {
    text += part.text;
    if (!part.expression) continue;
    try {
      text += python::python_str(jinja::evaluate(*part.expression, document));
    } catch (const UserError& error) {
      throw UserError(concat(error.what(), " (", origin_, ")"), ExitCode::kBadData);
    }
  }
  return text;
}

}  // namespace espalier::text
