// Runs the statements of a template over a document.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja/internal/calls.h"
#include "text/jinja/internal/node.h"
#include "text/jinja/template.h"

namespace espalier::text::jinja {

// Shared with what holds it: a part of the document, a literal, or a value that was made.
using Value = std::shared_ptr<const Json>;

// What raise_exception was called with.
struct Raised {
  std::string text;
};

class Interpreter {
 public:
  Interpreter(const Json& document, bool is_strict, const TemplateLimits& limits, std::time_t now);

  std::string run(const std::vector<Statement>& statements);
  int line() const { return line_; }  // of the statement that runs, or failed

 private:
  enum class Flow { kOn, kBreak, kContinue };
  using Scope = std::map<std::string, Value>;

  Flow run_all(const std::vector<Statement>& statements, std::string& out);
  Flow run_one(const Statement& statement, std::string& out);
  Flow run_if(const Statement& statement, std::string& out);
  void run_for(const Statement& statement, std::string& out);
  void set_field(const Statement& statement);
  void bind(const std::vector<std::string>& names, const Value& value);
  std::string captured(const std::vector<Statement>& statements);

  // `may_be_absent`: whoever asks takes an absent value even of a strict template.
  Value evaluate(const TemplateNode& node, bool may_be_absent = false);
  Value evaluate_inner(const TemplateNode& node, bool may_be_absent);
  bool is_callable(const TemplateNode& node) const;    // the name of a function or macro
  const Value* find(const std::string& wanted) const;  // of the scopes
  Value absent(bool may_be_absent, const std::string& complaint);
  Value name(const TemplateNode& node, bool may_be_absent);
  Value attribute(const TemplateNode& node, bool may_be_absent);
  Value item(const Value& value, const Json& index, bool may_be_absent);
  Value binary(const TemplateNode& node);
  Value list(const TemplateNode& node);
  Value dict(const TemplateNode& node);
  Value call(const TemplateNode& node);
  Value call_macro(const Statement& macro, const Arguments& arguments);
  Json range(const Arguments& arguments);
  std::string time_text(const Arguments& arguments) const;
  Arguments arguments_of(const TemplateNode& node, size_t first);
  Value owned(Json value);
  void work_on(const Json& value, bool on_entries = false);  // what goes through all of a value takes more steps
  void work_on_each(const Json& list, const Arguments& arguments);
  void spend_steps(int64_t count);
  void spend(size_t memory);

  const Json& document_;
  bool is_strict_;
  TemplateLimits limits_;
  std::time_t now_;
  int line_ = 1, depth_ = 0, num_open_macros_ = 0;
  int64_t steps_ = 0;
  size_t memory_ = 0;
  std::vector<Scope> scopes_;
  std::map<std::string, const Statement*> macros_;
};

}  // namespace espalier::text::jinja
