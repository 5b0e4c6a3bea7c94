// A template as trees: statements, and the expressions in them.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/internal/words.h"
#include "text/python_literal.h"

namespace espalier::text::jinja {

using python::Json;

enum class TemplateOp {
  kValue,
  kName,
  kList,
  kDict,
  kAttribute,
  kItem,
  kSlice,
  kMethod,
  kFilter,
  kTest,
  kCall,
  kNot,
  kMinus,
  kBinary,
  kChoice
};

struct TemplateNode {
  TemplateOp op = TemplateOp::kValue;
  std::string name;                   // of a variable, attribute, method, filter, test, function, operator
  Json value;                         // of a literal
  std::vector<TemplateNode> parts;    // operands; of a slice, a missing end is an absent value
  std::vector<std::string> keywords;  // names of the last parts
};

enum class StatementKind {
  kText,
  kOutput,
  kIf,   // a body for each condition, and one more for else
  kFor,  // over the first expression, if the second; a second body for else
  kSet,
  kSetField,  // names: the namespace and the field
  kSetBlock,
  kMacro,       // names: parameters; expressions: values of the last of them
  kGeneration,  // what the assistant said: a scope, no more
  kBreak,
  kContinue
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 1;
  std::string text;  // of text; a macro's name
  std::vector<std::string> names;
  std::vector<TemplateNode> expressions;
  std::vector<std::vector<Statement>> bodies;
};

// Reads expressions from the words of a tag. A UserError says what was expected and where in the expression.
class ExpressionParser {
 public:
  ExpressionParser(std::string_view text, bool is_chat) : words_(text), is_chat_(is_chat) {}

  TemplateNode parse_all();  // the whole text is one expression
  TemplateNode choice();     // with `a if b else c`
  TemplateNode either();     // without
  void expect_end();
  bool take(std::string_view text, Word::Kind kind = Word::kMark);
  bool take_word(std::string_view text) { return take(text, Word::kName); }
  void expect(std::string_view text);
  std::string expect_name();
  bool is(std::string_view text, Word::Kind kind = Word::kMark) const;
  bool at_end() const { return words_.word().kind == Word::kEnd; }
  const WordReader& words() const { return words_; }
  const std::set<std::string>& called() const { return called_; }  // functions that are not built in

 private:
  TemplateNode both();
  TemplateNode negation();
  TemplateNode comparison();
  TemplateNode sum();
  TemplateNode concatenation();
  TemplateNode product();
  TemplateNode unary();
  TemplateNode primary();
  TemplateNode list(const char* end, TemplateNode made_list);
  TemplateNode dict();
  TemplateNode postfix(TemplateNode node);
  TemplateNode attribute_or_method(TemplateNode node);
  TemplateNode item_or_slice(TemplateNode node);
  TemplateNode filter(TemplateNode node);
  TemplateNode test(TemplateNode node);
  void read_arguments(TemplateNode& call);
  TemplateNode made(TemplateOp op, const std::string& name, std::vector<TemplateNode> parts);

  WordReader words_;
  bool is_chat_;
  int depth_ = 0;
  int num_nodes_ = 0;
  std::set<std::string> called_;
};

struct ReadOptions {
  bool is_chat;  // trim_blocks, lstrip_blocks, no last line end; and what transformers adds to Jinja
};
// A ReadFailure gives the line.
std::vector<Statement> parse_template(std::string_view text, const ReadOptions& options);
struct ReadFailure {
  int line;
  std::string what;
};

}  // namespace espalier::text::jinja
