#include <array>
#include <charconv>
#include <map>

#include "base/error.h"
#include "text/jinja/internal/node.h"
#include "text/python_literal.h"

namespace espalier::text::jinja {
using namespace python;  // NOLINT(google-build-using-namespace): strings here are those of Python
namespace {

constexpr int kDeepestExpression = 40;

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool goes_on_name(char c) { return begins_name(c) || (c >= '0' && c <= '9'); }

struct Word {
  enum Kind { kName, kString, kNumber, kMark, kEnd } kind = kEnd;
  std::string text;  // of a string the value
  size_t at = 0;
};

// The words of an expression.
class WordReader {
 public:
  explicit WordReader(std::string_view text) : text_(text) { advance(); }

  const Word& word() const { return word_; }
  void advance() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
    word_ = {Word::kEnd, "", at_};
    if (at_ == text_.size()) return;
    const char c = text_[at_];
    if (begins_name(c)) {
      word_.kind = Word::kName;
      while (at_ < text_.size() && goes_on_name(text_[at_])) word_.text += text_[at_++];
    } else if (c == '\'' || c == '"') {
      read_string(c);
    } else if (c >= '0' && c <= '9') {
      word_.kind = Word::kNumber;
      while (at_ < text_.size() && (goes_on_name(text_[at_]) || is_decimal_point())) word_.text += text_[at_++];
    } else {
      word_.kind = Word::kMark;
      const std::string_view two = text_.substr(at_, 2);
      const bool is_two = two == "==" || two == "!=" || two == "<=" || two == ">=" || two == "//" || two == "**";
      word_.text = text_.substr(at_, is_two ? 2 : 1);
      at_ += word_.text.size();
    }
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(concat(what, " at byte ", word_.at + 1, " of the expression '", text_, "'"), ExitCode::kBadData);
  }

 private:
  bool is_decimal_point() const {
    return text_[at_] == '.' && at_ + 1 < text_.size() && text_[at_ + 1] >= '0' && text_[at_ + 1] <= '9';
  }
  void read_string(char quote) {
    const size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) fail("a string without its end");
    ++at_;
    // Line ends may stand in a template's string, but in none of Python's.
    std::string literal = std::string(2, quote) + std::string(text_.substr(begin, at_ - begin)) + std::string(2, quote);
    word_.kind = Word::kString;
    word_.text = parse_literal(literal).get<std::string>();
  }

  std::string_view text_;
  size_t at_ = 0;
  Word word_;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : words_(text) {}

  TemplateNode parse_all() {
    TemplateNode node = choice();
    if (words_.word().kind != Word::kEnd) words_.fail(concat("'", words_.word().text, "', which is not taken,"));
    return node;
  }

 private:
  bool is(std::string_view text, Word::Kind kind = Word::kMark) const {
    return words_.word().kind == kind && words_.word().text == text;
  }
  bool is_word(std::string_view text) const { return is(text, Word::kName); }
  bool take(std::string_view text, Word::Kind kind = Word::kMark) {
    if (!is(text, kind)) return false;
    words_.advance();
    return true;
  }
  void expect(std::string_view text) {
    if (!take(text)) words_.fail(concat("expected ", text));
  }
  std::string expect_name() {
    if (words_.word().kind != Word::kName) words_.fail("expected a name");
    std::string name = words_.word().text;
    words_.advance();
    return name;
  }
  static TemplateNode binary(const std::string& name, TemplateNode left, TemplateNode right) {
    return {TemplateOp::kBinary, name, {}, {std::move(left), std::move(right)}};
  }

  TemplateNode choice() {
    if (++depth_ > kDeepestExpression) words_.fail("too much nesting");
    TemplateNode node = either();
    if (take("if", Word::kName)) {
      TemplateNode condition = either();
      if (!take("else", Word::kName)) words_.fail("expected else");
      TemplateNode other = choice();
      node = {TemplateOp::kChoice, "", {}, {std::move(condition), std::move(node), std::move(other)}};
    }
    --depth_;
    return node;
  }
  TemplateNode either() {
    TemplateNode node = both();
    while (take("or", Word::kName)) node = binary("or", std::move(node), both());
    return node;
  }
  TemplateNode both() {
    TemplateNode node = negation();
    while (take("and", Word::kName)) node = binary("and", std::move(node), negation());
    return node;
  }
  TemplateNode negation() {
    bool negated = false;
    while (take("not", Word::kName)) negated = !negated;
    TemplateNode node = comparison();
    return negated ? TemplateNode{TemplateOp::kNot, "", {}, {std::move(node)}} : node;
  }
  TemplateNode comparison() {
    TemplateNode node = sum();
    for (const char* name : {"==", "!=", "<=", ">=", "<", ">"})
      if (take(name)) return binary(name, std::move(node), sum());
    const bool negated = take("not", Word::kName);
    if (take("in", Word::kName)) {
      TemplateNode inside = binary("in", std::move(node), sum());
      return negated ? TemplateNode{TemplateOp::kNot, "", {}, {std::move(inside)}} : inside;
    }
    if (negated) words_.fail("expected in");
    return node;
  }
  // From the left, and from the loosest on: + -, ~, *.
  TemplateNode sum() {
    TemplateNode node = concatenation();
    for (;;) {
      const std::string name = words_.word().text;
      if (!is("+") && !is("-")) return node;
      words_.advance();
      node = binary(name, std::move(node), concatenation());
    }
  }
  TemplateNode concatenation() {
    TemplateNode node = product();
    while (take("~")) node = binary("~", std::move(node), product());
    return node;
  }
  TemplateNode product() {
    TemplateNode node = unary();
    while (take("*")) node = binary("*", std::move(node), unary());
    return node;
  }
  // A filter takes what the minus gives.
  TemplateNode unary() {
    const bool is_negative = take("-");
    TemplateNode node = postfix(primary());
    if (is_negative) node = {TemplateOp::kMinus, "", {}, {std::move(node)}};
    while (take("|")) node = filter(std::move(node));
    return node;
  }

  TemplateNode primary() {
    const Word word = words_.word();
    if (take("(")) {
      TemplateNode node = choice();
      expect(")");
      return node;
    }
    if (take("[")) {
      TemplateNode list{TemplateOp::kList, "", {}, {}};
      while (!take("]")) {
        list.parts.push_back(choice());
        if (!is("]")) expect(",");
      }
      return list;
    }
    if (word.kind == Word::kEnd) words_.fail("expected a value");
    words_.advance();
    if (word.kind == Word::kString) return {TemplateOp::kValue, "", Json(word.text), {}};
    if (word.kind == Word::kNumber) return {TemplateOp::kValue, "", parse_literal(word.text), {}};
    if (word.kind != Word::kName) words_.fail(concat("'", word.text, "', which is not taken, before"));
    static const std::map<std::string, Json> kConstants = {{"true", true},   {"True", true}, {"false", false},
                                                           {"False", false}, {"none", {}},   {"None", {}}};
    if (const auto found = kConstants.find(word.text); found != kConstants.end())
      return {TemplateOp::kValue, "", found->second, {}};
    if (is("(")) words_.fail(concat("the function ", word.text, ", which is not taken,"));
    return {TemplateOp::kName, word.text, {}, {}};
  }

  TemplateNode postfix(TemplateNode node) {
    for (;;) {
      if (take("."))
        node = attribute_or_method(std::move(node));
      else if (take("["))
        node = item_or_slice(std::move(node));
      else
        return node;
    }
  }
  TemplateNode attribute_or_method(TemplateNode node) {
    const std::string name = expect_name();
    if (!is("(")) return {TemplateOp::kAttribute, name, {}, {std::move(node)}};
    if (!is_template_method(name)) words_.fail(concat("the method ", name, ", which is not taken,"));
    TemplateNode call{TemplateOp::kMethod, name, {}, {std::move(node)}};
    read_arguments(call, false);
    return call;
  }
  TemplateNode item_or_slice(TemplateNode node) {
    const TemplateNode nothing{TemplateOp::kValue, "", {}, {}};
    TemplateNode first = is(":") ? nothing : choice();
    if (take(":")) {
      TemplateNode last = is("]") ? nothing : choice();
      expect("]");
      return {TemplateOp::kSlice, "", {}, {std::move(node), std::move(first), std::move(last)}};
    }
    expect("]");
    return {TemplateOp::kItem, "", {}, {std::move(node), std::move(first)}};
  }
  TemplateNode filter(TemplateNode node) {
    const std::string name = expect_name();
    if (!is_template_filter(name)) words_.fail(concat("the filter ", name, ", which is not taken,"));
    TemplateNode call{TemplateOp::kFilter, name, {}, {std::move(node)}};
    if (is("(")) read_arguments(call, name == "map");
    if (name == "map" && call.value.is_null()) words_.fail("map is taken with attribute='...' alone,");
    return call;
  }
  void read_arguments(TemplateNode& call, bool takes_attribute) {
    expect("(");
    while (!take(")")) {
      TemplateNode argument = choice();
      if (take("=")) {
        const bool is_attribute = takes_attribute && argument.op == TemplateOp::kName && argument.name == "attribute";
        TemplateNode value = choice();
        if (!is_attribute || !value.value.is_string()) words_.fail("an argument by name, which is not taken,");
        call.value = value.value;
      } else {
        call.parts.push_back(std::move(argument));
      }
      if (!is(")")) expect(",");
    }
  }

  WordReader words_;
  int depth_ = 0;
};

}  // namespace

TemplateNode parse_template_expression(std::string_view text) { return ExpressionParser(text).parse_all(); }

}  // namespace espalier::text::jinja
