#include "text/jinja/internal/calls.h"

#include <map>
#include <set>

#include "base/error.h"
#include "text/jinja/internal/values.h"

namespace espalier::text::jinja {
namespace {

const std::set<std::string> kFunctions = {"namespace", "range", "raise_exception", "strftime_now"};
const std::set<std::string> kMethods = {"strip", "lstrip", "rstrip",     "split", "rsplit",     "splitlines", "replace",
                                        "lower", "upper",  "capitalize", "join",  "startswith", "endswith",   "index",
                                        "find",  "count",  "get",        "items", "keys",       "values"};
const std::map<std::string, std::set<std::string>> kFilters = {
    {"join", {"d", "attribute"}},
    {"list", {}},
    {"map", {"attribute", "default"}},
    {"select", {}},
    {"reject", {}},
    {"selectattr", {}},
    {"rejectattr", {}},
    {"length", {}},
    {"count", {}},
    {"first", {}},
    {"last", {}},
    {"replace", {}},
    {"lower", {}},
    {"upper", {}},
    {"capitalize", {}},
    {"trim", {"chars"}},
    {"string", {}},
    {"int", {}},
    {"tojson", {"indent"}},
    {"default", {"default_value", "boolean"}},
    {"d", {"default_value", "boolean"}},
    {"reverse", {}},
    {"items", {}},
    {"safe", {}},
};
// And whether it takes an argument.
const std::map<std::string, bool> kTests = {
    {"defined", false},   {"undefined", false}, {"none", false},     {"string", false}, {"number", false},
    {"integer", false},   {"float", false},     {"boolean", false},  {"true", false},   {"false", false},
    {"mapping", false},   {"sequence", false},  {"iterable", false}, {"odd", false},    {"even", false},
    {"in", true},         {"eq", true},         {"equalto", true},   {"==", true},      {"ne", true},
    {"!=", true},         {"lt", true},         {"gt", true},        {"le", true},      {"ge", true},
    {"divisibleby", true}};
const std::set<std::string> kOfLoop = {"index",     "index0", "first",    "last",    "revindex",
                                       "revindex0", "length", "previtem", "nextitem"};

bool is_literal_name(const TemplateNode& node) { return node.op == TemplateOp::kValue && node.value.is_string(); }

// Of two numbers or strings, by an operator's word.
std::string operator_of(const std::string& test) {
  static const std::map<std::string, std::string> kOperators = {
      {"eq", "=="}, {"equalto", "=="}, {"==", "=="}, {"ne", "!="}, {"!=", "!="},
      {"lt", "<"},  {"gt", ">"},       {"le", "<="}, {"ge", ">="}, {"in", "in"}};
  const auto found = kOperators.find(test);
  return found == kOperators.end() ? "" : found->second;
}

int64_t rest_of(const Json& value, const Json& by, const std::string& test) {
  if (!value.is_number_integer() || !by.is_number_integer() || by == 0)
    refuse(concat(test, " is of whole numbers, not of ", shown(value)));
  return by == -1 ? 0 : value.get<int64_t>() % by.get<int64_t>();
}

}  // namespace

bool is_function(const std::string& name) { return kFunctions.contains(name); }
bool is_of_chats(const std::string& function) { return function == "raise_exception" || function == "strftime_now"; }
bool is_method(const std::string& name) { return kMethods.contains(name); }
bool is_filter(const std::string& name) { return kFilters.contains(name); }
bool is_keyword(const std::string& filter, const std::string& name) { return kFilters.at(filter).contains(name); }
bool is_test(const std::string& name) { return kTests.contains(name); }
bool takes_argument(const std::string& test) { return kTests.at(test); }
bool is_of_loop(const std::string& name) { return kOfLoop.contains(name); }
bool calls_by_name(const std::string& filter) {
  return filter == "map" || filter == "select" || filter == "reject" || filter == "selectattr" ||
         filter == "rejectattr";
}

std::string named_call(const TemplateNode& filter) {
  if (!calls_by_name(filter.name)) return "";
  const size_t num_placed = filter.parts.size() - filter.keywords.size();
  if (filter.name == "map") {
    if (num_placed == 1 && !filter.keywords.empty() && filter.keywords[0] == "attribute") return "";
    if (num_placed < 2 || !filter.keywords.empty()) return "map without attribute='...' or the name of a filter";
    const bool is_known = is_literal_name(filter.parts[1]) && is_filter(filter.parts[1].value.get<std::string>()) &&
                          !calls_by_name(filter.parts[1].value.get<std::string>());
    return is_known ? "" : "map with a filter that is not supported";
  }
  const size_t place = filter.name.ends_with("attr") ? 2 : 1;
  if (num_placed < place) return concat(filter.name, " without the name of an attribute");
  if (num_placed == place) return "";
  if (!is_literal_name(filter.parts[place]) || !is_test(filter.parts[place].value.get<std::string>()))
    return concat(filter.name, " with a test that is not supported");
  const bool takes = takes_argument(filter.parts[place].value.get<std::string>());
  return num_placed == place + 1 + size_t{takes} ? "" : concat("another number of arguments of ", filter.name);
}

const Json* Arguments::find(const std::string& name, size_t place) const {
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return place < values.size() ? &values[place] : nullptr;
}

void check_arguments(const std::string& name, size_t given, size_t least, size_t most) {
  if (given < least || given > most)
    refuse(concat(name, " takes ", least, least == most ? "" : concat(" to ", most), " arguments, not ", given));
}

const std::string& string_of(const Json& value, const std::string& name) {
  if (!value.is_string()) refuse(concat(name, " is of a string, not of ", shown(value)));
  return value.get_ref<const std::string&>();
}

bool passes_test(const Json& value, const std::string& name, const std::vector<Json>& arguments) {
  if (name == "defined" || name == "undefined") return is_undefined(value) == (name == "undefined");
  if (const std::string operation = operator_of(name); !operation.empty())
    return is_true(binary_operation(operation, value, arguments.at(0)));
  if (name == "divisibleby") return rest_of(value, arguments.at(0), name) == 0;
  if (name == "odd" || name == "even") return (rest_of(value, 2, name) != 0) == (name == "odd");
  if (name == "none") return value.is_null();
  if (name == "string") return value.is_string();
  if (name == "number") return value.is_number() || value.is_boolean();
  if (name == "integer") return value.is_number_integer();
  if (name == "float") return value.is_number_float();
  if (name == "boolean") return value.is_boolean();
  if (name == "true" || name == "false") return value.is_boolean() && value.get<bool>() == (name == "true");
  if (name == "mapping") return value.is_object();
  return value.is_structured() || value.is_string() || is_undefined(value);  // sequence, iterable
}

}  // namespace espalier::text::jinja
