#include <map>

#include "base/error.h"
#include "text/jinja/internal/calls.h"
#include "text/jinja/internal/node.h"

namespace espalier::text::jinja {
namespace {

constexpr int kDeepestExpression = 40;
constexpr int kMostNodes = 400;  // of one tag: trees are walked by recursion

}  // namespace

TemplateNode ExpressionParser::made(TemplateOp op, const std::string& name, std::vector<TemplateNode> parts) {
  if (++num_nodes_ > kMostNodes) words_.fail("the expression is too long");
  TemplateNode node;
  node.op = op;
  node.name = name;
  node.parts = std::move(parts);
  return node;
}

namespace {
std::vector<TemplateNode> parts_of(TemplateNode first) {
  std::vector<TemplateNode> parts;
  parts.push_back(std::move(first));
  return parts;
}
template <class... More>
std::vector<TemplateNode> parts_of(TemplateNode first, More... more) {
  std::vector<TemplateNode> parts = parts_of(std::move(first));
  (parts.push_back(std::move(more)), ...);
  return parts;
}
TemplateNode constant(Json value) {
  TemplateNode node;
  node.value = std::move(value);
  return node;
}
}  // namespace

bool ExpressionParser::is(std::string_view text, Word::Kind kind) const {
  return words_.word().kind == kind && words_.word().text == text;
}
bool ExpressionParser::take(std::string_view text, Word::Kind kind) {
  if (!is(text, kind)) return false;
  words_.advance();
  return true;
}
void ExpressionParser::expect(std::string_view text) {
  if (!take(text)) words_.fail(concat("expected ", text));
}
std::string ExpressionParser::expect_name() {
  if (words_.word().kind != Word::kName) words_.fail("expected a name");
  std::string name = words_.word().text;
  words_.advance();
  return name;
}
void ExpressionParser::expect_end() {
  if (!at_end()) words_.fail(concat("'", words_.word().text, "', which is not supported,"));
}

TemplateNode ExpressionParser::parse_all() {
  TemplateNode node = choice();
  expect_end();
  return node;
}

TemplateNode ExpressionParser::choice() {
  TemplateNode node = either();
  while (take_word("if")) {
    TemplateNode condition = either();
    TemplateNode other = take_word("else") ? choice() : constant(Json(Json::value_t::discarded));
    node = made(TemplateOp::kChoice, "", parts_of(std::move(condition), std::move(node), std::move(other)));
  }
  return node;
}

TemplateNode ExpressionParser::either() {
  if (++depth_ > kDeepestExpression) words_.fail("too much nesting");
  TemplateNode node = both();
  while (take_word("or")) node = made(TemplateOp::kBinary, "or", parts_of(std::move(node), both()));
  --depth_;
  return node;
}

TemplateNode ExpressionParser::both() {
  TemplateNode node = negation();
  while (take_word("and")) node = made(TemplateOp::kBinary, "and", parts_of(std::move(node), negation()));
  return node;
}

TemplateNode ExpressionParser::negation() {
  bool negated = false, any = false;
  for (; take_word("not"); any = true) negated = !negated;
  TemplateNode node = comparison();
  if (any && !negated) node = made(TemplateOp::kNot, "", parts_of(std::move(node)));  // a truth value in any case
  return any ? made(TemplateOp::kNot, "", parts_of(std::move(node))) : node;
}

TemplateNode ExpressionParser::comparison() {
  TemplateNode node = sum();
  for (const char* name : {"==", "!=", "<=", ">=", "<", ">"})
    if (take(name)) return made(TemplateOp::kBinary, name, parts_of(std::move(node), sum()));
  const bool negated = take_word("not");
  if (take_word("in")) {
    TemplateNode inside = made(TemplateOp::kBinary, "in", parts_of(std::move(node), sum()));
    return negated ? made(TemplateOp::kNot, "", parts_of(std::move(inside))) : inside;
  }
  if (negated) words_.fail("expected in");
  return node;
}

// From the left, and from the loosest on: + -, ~, * / // %.
TemplateNode ExpressionParser::sum() {
  TemplateNode node = concatenation();
  while (is("+") || is("-")) {
    const std::string name = words_.word().text;
    words_.advance();
    node = made(TemplateOp::kBinary, name, parts_of(std::move(node), concatenation()));
  }
  return node;
}
TemplateNode ExpressionParser::concatenation() {
  TemplateNode node = product();
  while (take("~")) node = made(TemplateOp::kBinary, "~", parts_of(std::move(node), product()));
  return node;
}
TemplateNode ExpressionParser::product() {
  TemplateNode node = unary();
  while (is("*") || is("%") || is("//")) {
    const std::string name = words_.word().text;
    words_.advance();
    node = made(TemplateOp::kBinary, name, parts_of(std::move(node), unary()));
  }
  return node;
}

// Filters and tests take what the minus gives.
TemplateNode ExpressionParser::unary() {
  const bool is_negative = take("-");
  TemplateNode node = postfix(primary());
  if (is_negative) node = made(TemplateOp::kMinus, "", parts_of(std::move(node)));
  for (;;) {
    if (take("|"))
      node = filter(std::move(node));
    else if (take_word("is"))
      node = test(std::move(node));
    else
      return node;
  }
}

TemplateNode ExpressionParser::list(const char* end, TemplateNode made_list) {
  while (!take(end)) {
    made_list.parts.push_back(choice());
    if (!is(end)) expect(",");
  }
  return made_list;
}

TemplateNode ExpressionParser::dict() {
  TemplateNode made_dict = made(TemplateOp::kDict, "", {});
  while (!take("}")) {
    made_dict.parts.push_back(choice());
    expect(":");
    made_dict.parts.push_back(choice());
    if (!is("}")) expect(",");
  }
  return made_dict;
}

TemplateNode ExpressionParser::primary() {
  const Word word = words_.word();
  if (take("(")) {
    if (take(")")) return made(TemplateOp::kList, "", {});
    TemplateNode node = choice();
    if (take(",")) return list(")", made(TemplateOp::kList, "", parts_of(std::move(node))));
    expect(")");
    return node;
  }
  if (take("[")) return list("]", made(TemplateOp::kList, "", {}));
  if (take("{")) return dict();
  if (word.kind == Word::kEnd) words_.fail("expected a value");
  words_.advance();
  if (word.kind == Word::kString) {
    std::string text = word.text;
    for (; words_.word().kind == Word::kString; words_.advance()) text += words_.word().text;
    return constant(text);
  }
  if (word.kind == Word::kNumber) return constant(python::parse_literal(word.text));
  if (word.kind != Word::kName) words_.fail(concat("'", word.text, "', which is not supported, before"));
  static const std::map<std::string, Json> kConstants = {{"true", true},   {"True", true}, {"false", false},
                                                         {"False", false}, {"none", {}},   {"None", {}}};
  if (const auto found = kConstants.find(word.text); found != kConstants.end()) return constant(found->second);
  TemplateNode node = made(TemplateOp::kName, word.text, {});
  if (!is("(")) return node;
  node.op = TemplateOp::kCall;
  if (!is_function(word.text) || (is_of_chats(word.text) && !is_chat_)) called_.insert(word.text);
  read_arguments(node);
  return node;
}

TemplateNode ExpressionParser::postfix(TemplateNode node) {
  for (;;) {
    if (take("."))
      node = attribute_or_method(std::move(node));
    else if (take("["))
      node = item_or_slice(std::move(node));
    else
      return node;
  }
}

TemplateNode ExpressionParser::attribute_or_method(TemplateNode node) {
  const bool is_loop = node.op == TemplateOp::kName && node.name == "loop";
  const std::string name = expect_name();
  if (is_loop && !is_of_loop(name)) words_.fail(concat("loop.", name, ", which is not supported,"));
  if (!is("(")) return made(TemplateOp::kAttribute, name, parts_of(std::move(node)));
  if (!is_method(name)) words_.fail(concat("the method ", name, ", which is not supported,"));
  TemplateNode call = made(TemplateOp::kMethod, name, parts_of(std::move(node)));
  read_arguments(call);
  if (!call.keywords.empty()) words_.fail("an argument by name, which is not supported,");
  return call;
}

TemplateNode ExpressionParser::item_or_slice(TemplateNode node) {
  TemplateNode first = is(":") ? constant({}) : choice();
  if (!take(":")) {
    expect("]");
    return made(TemplateOp::kItem, "", parts_of(std::move(node), std::move(first)));
  }
  TemplateNode last = is("]") || is(":") ? constant({}) : choice();
  TemplateNode step = take(":") && !is("]") ? choice() : constant({});
  expect("]");
  return made(TemplateOp::kSlice, "", parts_of(std::move(node), std::move(first), std::move(last), std::move(step)));
}

TemplateNode ExpressionParser::filter(TemplateNode node) {
  const std::string name = expect_name();
  if (!is_filter(name) || (name == "tojson" && !is_chat_))
    words_.fail(concat("the filter ", name, ", which is not supported,"));
  TemplateNode call = made(TemplateOp::kFilter, name, parts_of(std::move(node)));
  if (is("(")) read_arguments(call);
  for (const std::string& keyword : call.keywords)
    if (!is_keyword(name, keyword))
      words_.fail(concat("the argument ", keyword, " of ", name, ", which is not supported,"));
  if (const std::string tried = named_call(call); !tried.empty()) words_.fail(tried);
  return call;
}

// `is [not] NAME`, and an argument in brackets or bare.
TemplateNode ExpressionParser::test(TemplateNode node) {
  const bool negated = take_word("not");
  const std::string name = expect_name();
  if (!is_test(name)) words_.fail(concat("the test ", name, ", which is not supported,"));
  TemplateNode call = made(TemplateOp::kTest, name, parts_of(std::move(node)));
  if (is("("))
    read_arguments(call);
  else if (takes_argument(name))
    call.parts.push_back(postfix(primary()));
  if (!call.keywords.empty()) words_.fail("an argument by name, which is not supported,");
  if (call.parts.size() != 1 + size_t{takes_argument(name)})
    words_.fail(concat("another number of arguments of ", name));
  return negated ? made(TemplateOp::kNot, "", parts_of(std::move(call))) : call;
}

void ExpressionParser::read_arguments(TemplateNode& call) {
  expect("(");
  while (!take(")")) {
    if (is("*") || is("**")) words_.fail(concat("'", words_.word().text, "', which is not supported, before"));
    TemplateNode argument = choice();
    if (take("=")) {
      if (argument.op != TemplateOp::kName) words_.fail("expected a name before =,");
      call.keywords.push_back(argument.name);
      argument = choice();
    } else if (!call.keywords.empty()) {
      words_.fail("expected an argument by name");
    }
    call.parts.push_back(std::move(argument));
    if (!is(")")) expect(",");
  }
}

}  // namespace espalier::text::jinja
