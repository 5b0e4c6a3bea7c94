// An expression of a template, as a tree.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/python_literal.h"

namespace espalier::text::jinja {

using python::Json;

enum class TemplateOp {
  kValue,
  kName,
  kList,
  kAttribute,
  kItem,
  kSlice,
  kMethod,
  kFilter,
  kNot,
  kMinus,
  kBinary,
  kChoice
};

struct TemplateNode {
  TemplateOp op = TemplateOp::kValue;
  std::string name;                 // of a field, attribute, method, filter, keyword argument ("=name"), operator
  Json value;                       // of a literal
  std::vector<TemplateNode> parts;  // operands; of a slice, a missing end is an absent value
};

// A UserError says what was expected and where in the expression.
TemplateNode parse_template_expression(std::string_view text);

Json evaluate(const TemplateNode& node, const Json& document);

// What a template may call: methods of strings and lists, and filters. Unknown names throw when they are read.
bool is_template_method(const std::string& name);
bool is_template_filter(const std::string& name);
Json call_template_method(const Json& target, const std::string& name, const std::vector<Json>& arguments);
// `attribute`: of map(attribute='...'), else empty.
Json apply_template_filter(const Json& value, const std::string& name, const std::vector<Json>& arguments,
                           const std::string& attribute);
// Python's ==: True is 1.
bool is_equal(const Json& left, const Json& right);
// value.name or value['name'] of an object.
const Json& template_attribute(const Json& value, const std::string& name);

}  // namespace espalier::text::jinja
