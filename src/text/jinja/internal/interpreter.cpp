#include "text/jinja/internal/interpreter.h"

#include "base/error.h"
#include "text/jinja/internal/values.h"

namespace espalier::text::jinja {
namespace {

constexpr int64_t kBytesOfStep = 64;

}  // namespace

Interpreter::Interpreter(const Json& document, bool is_strict, const TemplateLimits& limits, std::time_t now)
    : document_(document), is_strict_(is_strict), limits_(limits), now_(now) {
  constexpr size_t kUsualCopies = 32;
  const size_t weight = weight_of(document);
  limits_.memory += kUsualCopies * weight;
  limits_.steps += static_cast<int64_t>(weight);
}

void Interpreter::work_on(const Json& value, bool on_entries) {
  if (value.is_string())
    spend_steps(static_cast<int64_t>(value.get_ref<const std::string&>().size()) / kBytesOfStep);
  else if (on_entries)
    spend_steps(static_cast<int64_t>(weight_of(value)) / kBytesOfStep);
  else
    spend_steps(static_cast<int64_t>(value.size()));
}

// A filter or test that is called for each entry.
void Interpreter::work_on_each(const Json& list, const Arguments& arguments) {
  int64_t bytes = kBytesOfStep;
  for (const Json& value : arguments.values) bytes += static_cast<int64_t>(weight_of(value));
  work_on(list, true);
  spend_steps(static_cast<int64_t>(list.size()) * (bytes / kBytesOfStep));
}
void Interpreter::spend_steps(int64_t count) {
  steps_ += count;
  if (steps_ > limits_.steps) refuse(concat("the template takes more than ", limits_.steps, " steps"));
}
void Interpreter::spend(size_t memory) {
  memory_ += memory;
  if (memory_ > limits_.memory) refuse(concat("the template takes more than ", limits_.memory, " bytes"));
}
Value Interpreter::owned(Json value) {
  spend(weight_of(value));
  return std::make_shared<Json>(std::move(value));
}

std::string Interpreter::run(const std::vector<Statement>& statements) {
  scopes_.assign(1, {});
  std::string out;
  run_all(statements, out);
  return out;
}

Interpreter::Flow Interpreter::run_all(const std::vector<Statement>& statements, std::string& out) {
  for (const Statement& statement : statements)
    if (const Flow flow = run_one(statement, out); flow != Flow::kOn) return flow;
  return Flow::kOn;
}

std::string Interpreter::captured(const std::vector<Statement>& statements) {
  std::string out;
  scopes_.emplace_back();
  run_all(statements, out);
  scopes_.pop_back();
  return out;
}

Interpreter::Flow Interpreter::run_one(const Statement& statement, std::string& out) {
  spend_steps(1);
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      spend(statement.text.size());
      out += statement.text;
      break;
    case StatementKind::kOutput: {
      const std::string text = text_of(*evaluate(statement.expressions[0]));
      spend(text.size());
      out += text;
      break;
    }
    case StatementKind::kIf: return run_if(statement, out);
    case StatementKind::kFor: run_for(statement, out); break;
    case StatementKind::kSet: {
      const Value value = evaluate(statement.expressions[0], true);
      if (is_namespace(*value) && value.use_count() > 1) refuse("a second name of a namespace is not supported");
      bind(statement.names, value);
      break;
    }
    case StatementKind::kSetField: set_field(statement); break;
    case StatementKind::kSetBlock: bind(statement.names, owned(captured(statement.bodies[0]))); break;
    case StatementKind::kMacro: macros_[statement.text] = &statement; break;
    case StatementKind::kGeneration: out += captured(statement.bodies[0]); break;
    case StatementKind::kBreak: return Flow::kBreak;
    case StatementKind::kContinue: return Flow::kContinue;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run_if(const Statement& statement, std::string& out) {
  for (size_t i = 0; i < statement.expressions.size(); ++i)
    if (is_true(*evaluate(statement.expressions[i]))) return run_all(statement.bodies[i], out);
  return statement.bodies.size() > statement.expressions.size() ? run_all(statement.bodies.back(), out) : Flow::kOn;
}

void Interpreter::run_for(const Statement& statement, std::string& out) {
  const Value given = evaluate(statement.expressions[0]);
  const Value visited = given->is_array() ? given : owned(list_of(*given, limits_.memory - memory_));
  std::vector<Value> entries;
  for (const Json& entry : *visited) {
    const Value value(visited, &entry);
    scopes_.emplace_back();
    if (statement.expressions.size() > 1) bind(statement.names, value);
    if (statement.expressions.size() == 1 || is_true(*evaluate(statement.expressions[1]))) entries.push_back(value);
    scopes_.pop_back();
  }
  const size_t size = entries.size();
  for (size_t i = 0; i < size; ++i) {
    spend_steps(1);
    scopes_.emplace_back();
    const Json loop = {{"index", i + 1},        {"index0", i},          {"first", i == 0},
                       {"last", i + 1 == size}, {"revindex", size - i}, {"revindex0", size - i - 1},
                       {"length", size}};
    scopes_.back()["loop"] = owned(loop);
    // Next to the loop, so that the neighbours are not copied for each turn.
    if (i > 0) scopes_.back()["loop.previtem"] = entries[i - 1];
    if (i + 1 < size) scopes_.back()["loop.nextitem"] = entries[i + 1];
    bind(statement.names, entries[i]);
    const Flow flow = run_all(statement.bodies[0], out);
    scopes_.pop_back();
    if (flow == Flow::kBreak) break;
  }
  if (size == 0 && statement.bodies.size() > 1) run_all(statement.bodies[1], out);
}

void Interpreter::bind(const std::vector<std::string>& names, const Value& value) {
  if (names.size() == 1) {
    scopes_.back()[names[0]] = value;
    return;
  }
  if (!value->is_array() || value->size() != names.size())
    refuse(concat(shown(*value), " is not a list of ", names.size()));
  for (size_t i = 0; i < names.size(); ++i) scopes_.back()[names[i]] = Value(value, &(*value)[i]);
}

void Interpreter::set_field(const Statement& statement) {
  const Value value = evaluate(statement.expressions[0]);
  for (size_t i = scopes_.size(); i-- > 0;) {
    const auto found = scopes_[i].find(statement.names[0]);
    if (found == scopes_[i].end()) continue;
    if (!is_namespace(*found->second)) break;
    if (is_namespace(*value)) refuse("a namespace inside of a namespace is not supported");
    if (found->second.use_count() > 1) found->second = owned(*found->second);
    spend(weight_of(*value));
    (*std::const_pointer_cast<Json>(found->second))[statement.names[1]] = *value;  // owned() makes no constants
    return;
  }
  refuse(concat("'", statement.names[0], "' is not a namespace"));
}

}  // namespace espalier::text::jinja
