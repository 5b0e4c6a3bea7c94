// The values of expressions.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/jinja/internal/interpreter.h"
#include "text/jinja/internal/values.h"
#include "text/python_text.h"

namespace espalier::text::jinja {
namespace {

constexpr int kDeepestEvaluation = 600;
constexpr int kDeepestMacro = 32;

Value borrowed(const Json& value) { return {Value(), &value}; }

// A copy would no longer be the namespace.
const Json& plain(const Json& value) {
  if (is_namespace(value)) refuse("a namespace as an argument or an entry is not supported");
  return value;
}

// Names that a dict of Python answers with a method, not with its entry.
bool is_method_of_dict(const std::string& name) {
  static const std::set<std::string> kNames = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                               "pop",   "popitem", "setdefault", "update", "values"};
  return kNames.contains(name);
}

}  // namespace

Value Interpreter::evaluate(const TemplateNode& node, bool may_be_absent) {
  spend_steps(1);
  if (++depth_ > kDeepestEvaluation) refuse("too much nesting");
  Value value = evaluate_inner(node, may_be_absent);
  --depth_;
  return value;
}

Value Interpreter::evaluate_inner(const TemplateNode& node, bool may_be_absent) {
  const auto part = [&](size_t i) { return evaluate(node.parts[i]); };
  switch (node.op) {
    case TemplateOp::kValue:
      return is_undefined(node.value) ? absent(may_be_absent, "a value without else is missing") : borrowed(node.value);
    case TemplateOp::kName: return name(node, may_be_absent);
    case TemplateOp::kList: return list(node);
    case TemplateOp::kDict: return dict(node);
    case TemplateOp::kAttribute: return attribute(node, may_be_absent);
    case TemplateOp::kItem: {
      const Value value = part(0), index = part(1);
      return item(value, *index, may_be_absent);
    }
    case TemplateOp::kSlice: {
      const Value value = part(0), first = part(1), last = part(2), step = part(3);
      work_on(*value);
      return owned(sliced(*value, *first, *last, *step));
    }
    case TemplateOp::kMethod: {
      const Value target = part(0);
      work_on(*target);
      return owned(call_method(*target, node.name, arguments_of(node, 1)));
    }
    case TemplateOp::kFilter: {
      const Value value = evaluate(node.parts[0], node.name == "default" || node.name == "d");
      work_on(*value);
      const Arguments arguments = arguments_of(node, 1);
      if (calls_by_name(node.name)) work_on_each(*value, arguments);
      const Value made = owned(apply_filter(*value, node.name, arguments));
      return is_undefined(*made) ? absent(may_be_absent, concat(node.name, " of an empty list")) : made;
    }
    case TemplateOp::kTest: {
      if (node.name == "defined" && is_callable(node.parts[0])) return owned(true);
      const Value value = evaluate(node.parts[0], node.name == "defined" || node.name == "undefined");
      work_on(*value);
      return owned(passes_test(*value, node.name, arguments_of(node, 1).values));
    }
    case TemplateOp::kCall: return call(node);
    case TemplateOp::kNot: return owned(!is_true(*part(0)));
    case TemplateOp::kMinus: return owned(negative(*part(0)));
    case TemplateOp::kBinary: return binary(node);
    case TemplateOp::kChoice: return evaluate(node.parts[is_true(*part(0)) ? 1 : 2], may_be_absent);
  }
  return absent(may_be_absent, "");
}

Value Interpreter::absent(bool may_be_absent, const std::string& complaint) {
  static const Json kAbsent = undefined();
  if (is_strict_ && !may_be_absent) refuse(complaint);
  return borrowed(kAbsent);
}

bool Interpreter::is_callable(const TemplateNode& node) const {
  if (node.op != TemplateOp::kName) return false;
  return macros_.contains(node.name) || (is_function(node.name) && (!is_strict_ || !is_of_chats(node.name)));
}

const Value* Interpreter::find(const std::string& wanted) const {
  for (size_t i = scopes_.size(); i-- > 0;)
    if (const auto found = scopes_[i].find(wanted); found != scopes_[i].end()) return &found->second;
  return nullptr;
}

Value Interpreter::name(const TemplateNode& node, bool may_be_absent) {
  if (const Value* const found = find(node.name)) return *found;
  if (document_.contains(node.name)) return borrowed(document_.at(node.name));
  return absent(may_be_absent, concat("field '", node.name, "' is missing"));
}

Value Interpreter::attribute(const TemplateNode& node, bool may_be_absent) {
  if (node.parts[0].name == "loop" && (node.name == "previtem" || node.name == "nextitem")) {
    const Value* const found = find("loop." + node.name);
    return found != nullptr ? *found : absent(may_be_absent, concat("there is no loop.", node.name));
  }
  const Value value = evaluate(node.parts[0]);
  const auto complaint = [&] { return concat("there is no '", node.name, "' in ", shown(*value, 80)); };
  if (is_undefined(*value)) refuse(complaint());
  if (!value->is_object() || !value->contains(node.name)) return absent(may_be_absent, complaint());
  if (is_method_of_dict(node.name))
    refuse(concat("'.", node.name, "' is a method of Python; write ['", node.name, "']"));
  return {value, &value->at(node.name)};
}

Value Interpreter::item(const Value& value, const Json& index, bool may_be_absent) {
  if (index.is_boolean()) return item(value, index.get<bool>() ? 1 : 0, may_be_absent);
  const auto complaint = [&] { return concat("there is no ", python::python_repr(index), " in ", shown(*value, 80)); };
  if (is_undefined(*value)) refuse(complaint());
  if (index.is_string() && value->is_object()) {
    const std::string& key = index.get_ref<const std::string&>();
    if (value->contains(key)) return {value, &value->at(key)};
  } else if (index.is_number_integer() && (value->is_array() || value->is_string())) {
    work_on(*value);
    const auto place = index.get<int64_t>();
    const auto size = value->is_array() ? static_cast<int64_t>(value->size())
                                        : python::num_characters(value->get_ref<const std::string&>());
    const int64_t at = place < 0 ? place + size : place;
    if (at >= 0 && at < size)
      return value->is_array() ? Value(value, &(*value)[static_cast<size_t>(at)])
                               : owned(std::string(python::slice(value->get_ref<const std::string&>(), at, at + 1)));
  }
  return absent(may_be_absent, complaint());
}

Value Interpreter::binary(const TemplateNode& node) {
  Value left = evaluate(node.parts[0]);
  if (node.name == "or") return is_true(*left) ? left : evaluate(node.parts[1]);
  if (node.name == "and") return is_true(*left) ? evaluate(node.parts[1]) : left;
  const Value right = evaluate(node.parts[1]);
  const bool compares_entries = node.name == "==" || node.name == "!=" || node.name == "in";
  for (const Value& side : {left, right}) work_on(*side, compares_entries);
  return owned(binary_operation(node.name, *left, *right));
}

Value Interpreter::list(const TemplateNode& node) {
  Json made = Json::array();
  for (const TemplateNode& part : node.parts) made.push_back(plain(*evaluate(part)));
  return owned(std::move(made));
}

Value Interpreter::dict(const TemplateNode& node) {
  Json made = Json::object();
  for (size_t i = 0; i < node.parts.size(); i += 2) {
    const Value key = evaluate(node.parts[i]), value = evaluate(node.parts[i + 1]);
    made[string_of(*key, "a name in {}")] = plain(*value);
  }
  return owned(std::move(made));
}

Arguments Interpreter::arguments_of(const TemplateNode& node, size_t first) {
  Arguments arguments;
  const size_t num_placed = node.parts.size() - node.keywords.size();
  for (size_t i = first; i < num_placed; ++i) arguments.values.push_back(plain(*evaluate(node.parts[i])));
  for (size_t i = 0; i < node.keywords.size(); ++i)
    arguments.named.emplace_back(node.keywords[i], plain(*evaluate(node.parts[num_placed + i])));
  for (const Json& value : arguments.values) work_on(value);
  arguments.most = limits_.memory - memory_;
  return arguments;
}

Value Interpreter::call(const TemplateNode& node) {
  const Arguments arguments = arguments_of(node, 0);
  if (const auto macro = macros_.find(node.name); macro != macros_.end()) return call_macro(*macro->second, arguments);
  if (!is_function(node.name)) refuse(concat("the macro ", node.name, " is called before it is defined"));
  if (node.name == "namespace") {
    check_arguments(node.name, arguments.values.size(), 0, 0);
    return owned(made_namespace(arguments.named));
  }
  if (!arguments.named.empty()) refuse(concat(node.name, " accepts no arguments by name"));
  if (node.name == "range") return owned(range(arguments));
  check_arguments(node.name, arguments.values.size(), 1, 1);
  if (node.name == "raise_exception") throw Raised{text_of(arguments.values[0])};
  return owned(time_text(arguments));
}

Json Interpreter::range(const Arguments& arguments) {
  const std::vector<Json>& given = arguments.values;
  check_arguments("range", given.size(), 1, 3);
  for (const Json& value : given)
    if (!value.is_number_integer()) refuse(concat("range is of whole numbers, not of ", shown(value)));
  const auto begin = given.size() == 1 ? 0 : given[0].get<int64_t>();
  const auto end = given[given.size() == 1 ? 0 : 1].get<int64_t>();
  const auto step = given.size() == 3 ? given[2].get<int64_t>() : 1;
  if (step == 0) refuse("range does not accept a step of 0");
  constexpr int64_t kFarthest = int64_t{1} << 40;
  for (const int64_t number : {begin, end, step})
    if (number < -kFarthest || number > kFarthest) refuse("range goes too far");
  Json list = Json::array();
  for (int64_t at = begin; step > 0 ? at < end : at > end; at += step) {
    spend_steps(1);
    list.push_back(at);
  }
  return list;
}

Value Interpreter::call_macro(const Statement& macro, const Arguments& arguments) {
  if (++num_open_macros_ > kDeepestMacro) refuse(concat("the macro ", macro.text, " calls itself too deep"));
  check_arguments(macro.text, arguments.values.size(), 0, macro.names.size());
  std::vector<Scope> callers(1);
  std::swap(callers, scopes_);
  scopes_.assign(1, callers[0]);  // what the template sets outside everything
  scopes_.emplace_back();
  const size_t num_required = macro.names.size() - macro.expressions.size();
  for (size_t i = 0; i < macro.names.size(); ++i) {
    const Json* const given = arguments.find(macro.names[i], i);
    const Value value = given != nullptr   ? owned(*given)
                        : i < num_required ? absent(true, "")
                                           : evaluate(macro.expressions[i - num_required], true);
    scopes_.back()[macro.names[i]] = value;
  }
  for (const auto& [name, value] : arguments.named)
    if (std::find(macro.names.begin(), macro.names.end(), name) == macro.names.end())
      refuse(concat("the macro ", macro.text, " has no parameter ", name));
  std::string out;
  run_all(macro.bodies[0], out);
  callers[0] = std::move(scopes_[0]);
  scopes_ = std::move(callers);
  --num_open_macros_;
  return owned(std::move(out));
}

std::string Interpreter::time_text(const Arguments& arguments) const {
  const std::string& format = string_of(arguments.values[0], "strftime_now");
  std::tm time{};
  localtime_r(&now_, &time);
  std::array<char, 4096> text;
  const size_t size = std::strftime(text.data(), text.size(), (format + " ").c_str(), &time);  // never empty
  if (size == 0) refuse("strftime_now makes too long a text");
  return {text.data(), size - 1};
}

}  // namespace espalier::text::jinja
