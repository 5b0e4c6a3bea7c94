// Tags and the blanks around them, and the statements that they make.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "text/jinja/internal/node.h"
#include "text/python_text.h"

namespace espalier::text::jinja {
namespace {

constexpr int kDeepestStatement = 24;

struct Tag {
  std::string before;  // text
  char kind = 0;       // '{', '%', '#'; 0 at the end of the template
  std::string inside;
  int line = 1;
};

// Where the end of a tag is, from `begin` on: none in a string or in brackets of an expression.
size_t end_of_tag(std::string_view text, size_t begin, char kind) {
  if (kind == '#') return text.find("#}", begin);
  const char* const end = kind == '%' ? "%}" : "}}";
  int depth = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    const char c = text[at];
    if (depth == 0 && text.substr(at).starts_with(end)) return at;
    if (c == '\'' || c == '"')
      for (++at; at < text.size() && text[at] != c; ++at) at += text[at] == '\\';
    else if (c == '(' || c == '[' || c == '{')
      ++depth;
    else if ((c == ')' || c == ']' || c == '}') && depth > 0)
      --depth;
  }
  return std::string_view::npos;
}

size_t begin_of_tag(std::string_view text) {
  size_t open = text.find('{');
  while (open != std::string_view::npos &&
         (open + 1 >= text.size() || std::string_view("{%#").find(text[open + 1]) == std::string_view::npos))
    open = text.find('{', open + 1);
  return open;
}

class TagReader {
 public:
  TagReader(std::string_view text, const ReadOptions& options) : rest_(text), options_(options) {}

  Tag next() {
    Tag tag;
    const size_t open = begin_of_tag(rest_);
    std::string_view before = rest_.substr(0, open);
    line_ += count_lines(before);
    tag.line = line_;
    if (open == std::string_view::npos) {
      tag.before = before;
      rest_ = {};
      return tag;
    }
    tag.kind = rest_[open + 1];
    const size_t close = end_of_tag(rest_, open + 2, tag.kind);
    if (close == std::string_view::npos) throw ReadFailure{line_, concat("'", rest_.substr(open, 60), "' has no end")};
    std::string_view inside = rest_.substr(open + 2, close - open - 2);
    line_ += count_lines(inside);
    const char sign = inside.empty() ? ' ' : inside.front();
    if (sign == '-') before = python::strip_right(before);
    if (sign != '-' && sign != '+' && options_.is_chat && tag.kind != '{') before = without_indent(before);
    if (sign == '-' || sign == '+') inside.remove_prefix(1);
    rest_.remove_prefix(close + 2);
    at_line_begin_ = false;
    pass_blanks(tag.kind, inside);
    tag.before = before;
    tag.inside = inside;
    return tag;
  }

 private:
  static int count_lines(std::string_view text) { return static_cast<int>(std::count(text.begin(), text.end(), '\n')); }
  // lstrip_blocks: a tag that begins its line is at its begin.
  std::string_view without_indent(std::string_view before) const {
    const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
    if (line_begin == 0 && !at_line_begin_) return before;
    return python::strip(before.substr(line_begin)).empty() ? before.substr(0, line_begin) : before;
  }
  void pass_blanks(char kind, std::string_view& inside) {
    std::string_view after = rest_;
    if (inside.ends_with('-')) {
      inside.remove_suffix(1);
      after = python::strip_left(rest_);
    } else if (kind != '{' && inside.ends_with('+')) {
      inside.remove_suffix(1);
    } else if (kind != '{' && options_.is_chat && rest_.starts_with('\n')) {
      after = rest_.substr(1);
    }
    const std::string_view passed = rest_.substr(0, rest_.size() - after.size());
    line_ += count_lines(passed);
    at_line_begin_ = passed.ends_with('\n');
    rest_ = after;
  }

  std::string_view rest_;
  ReadOptions options_;
  int line_ = 1;
  bool at_line_begin_ = true;
};

class StatementParser {
 public:
  StatementParser(std::string_view text, const ReadOptions& options) : tags_(text, options), options_(options) {}

  std::vector<Statement> parse_all() {
    std::vector<Statement> statements;
    const std::string end = body(statements, {});
    if (!end.empty()) throw ReadFailure{line_, concat("the statement '{% ", end, " %}' has no beginning")};
    for (const auto& [name, line] : called_)
      if (!macros_.contains(name)) throw ReadFailure{line, concat("the function ", name, " is not supported")};
    return statements;
  }

 private:
  // Statements up to one of `ends`, whose keyword comes back; its tag is in inside_.
  std::string body(std::vector<Statement>& statements, const std::set<std::string>& ends) {
    if (++depth_ > kDeepestStatement) throw ReadFailure{line_, "too much nesting of statements"};
    for (;;) {
      const Tag tag = tags_.next();
      line_ = tag.line;
      if (!tag.before.empty()) {
        statements.emplace_back();
        statements.back().text = tag.before;
      }
      if (tag.kind == '#') continue;
      if (tag.kind == 0) {
        if (!ends.empty()) throw ReadFailure{line_, concat("expected '{% ", *ends.begin(), " %}' before the end")};
        --depth_;
        return "";
      }
      if (tag.kind == '{') {
        Statement output = made(StatementKind::kOutput);
        read(tag.inside, [&](ExpressionParser& words) { output.expressions.push_back(words.parse_all()); });
        statements.push_back(std::move(output));
        continue;
      }
      std::string keyword;
      inside_ = tag.inside;
      read(inside_, [&](ExpressionParser& words) { keyword = words.expect_name(); });
      if (ends.contains(keyword)) {
        --depth_;
        return keyword;
      }
      statements.push_back(statement(keyword));
    }
  }

  Statement made(StatementKind kind) const {
    Statement statement;
    statement.kind = kind;
    statement.line = line_;
    return statement;
  }

  template <class Use>
  void read(const std::string& inside, Use use) {
    try {
      ExpressionParser words(inside, options_.is_chat);
      use(words);
      for (const std::string& name : words.called()) called_.emplace(name, line_);
    } catch (const UserError& error) {
      throw ReadFailure{line_, error.what()};
    }
  }
  // The words after the keyword, to their end.
  template <class Use>
  void read_rest(Use use) {
    read(inside_, [&](ExpressionParser& words) {
      words.expect_name();
      use(words);
      words.expect_end();
    });
  }
  void read_nothing() {
    read_rest([](ExpressionParser&) {});
  }

  Statement statement(const std::string& keyword) {
    if (keyword == "if") return if_statement();
    if (keyword == "for") return for_statement();
    if (keyword == "set") return set_statement();
    if (keyword == "macro") return macro_statement();
    if (options_.is_chat && keyword == "generation") {
      Statement made_block = made(StatementKind::kGeneration);
      read_nothing();
      close(made_block, "endgeneration");
      return made_block;
    }
    if (options_.is_chat && num_loops_ > 0 && (keyword == "break" || keyword == "continue")) {
      read_nothing();
      return made(keyword == "break" ? StatementKind::kBreak : StatementKind::kContinue);
    }
    throw ReadFailure{line_, concat("the statement '{%", inside_.substr(0, 80), "%}' of a template is not supported")};
  }

  void close(Statement& opened, const char* end) {
    opened.bodies.emplace_back();
    std::vector<Statement> inside;
    body(inside, {end});
    opened.bodies.back() = std::move(inside);
    read_nothing();
  }

  Statement if_statement() {
    Statement made_if = made(StatementKind::kIf);
    std::string end = "elif";
    while (end == "elif") {
      read_rest([&](ExpressionParser& words) { made_if.expressions.push_back(words.choice()); });
      std::vector<Statement> inside;
      end = body(inside, {"endif", "elif", "else"});
      made_if.bodies.push_back(std::move(inside));
    }
    read_nothing();
    if (end == "else") close(made_if, "endif");
    return made_if;
  }

  Statement for_statement() {
    Statement made_for = made(StatementKind::kFor);
    read_rest([&](ExpressionParser& words) {
      const bool in_brackets = words.take("(");
      do made_for.names.push_back(words.expect_name());
      while (words.take(","));
      if (in_brackets) words.expect(")");
      if (!words.take_word("in")) words.words().fail("expected in");
      made_for.expressions.push_back(words.either());
      if (words.take_word("if")) made_for.expressions.push_back(words.choice());
    });
    ++num_loops_;
    std::vector<Statement> inside;
    const std::string end = body(inside, {"endfor", "else"});
    made_for.bodies.push_back(std::move(inside));
    --num_loops_;
    read_nothing();
    if (end == "else") close(made_for, "endfor");
    return made_for;
  }

  Statement set_statement() {
    Statement made_set = made(StatementKind::kSet);
    read_rest([&](ExpressionParser& words) {
      made_set.names.push_back(words.expect_name());
      if (words.take(".")) {
        made_set.kind = StatementKind::kSetField;
        made_set.names.push_back(words.expect_name());
      }
      while (made_set.kind == StatementKind::kSet && words.take(",")) made_set.names.push_back(words.expect_name());
      if (words.take("="))
        made_set.expressions.push_back(words.choice());
      else if (made_set.kind == StatementKind::kSet && made_set.names.size() == 1 && words.at_end())
        made_set.kind = StatementKind::kSetBlock;
      else
        words.expect("=");
    });
    if (made_set.kind == StatementKind::kSetBlock) close(made_set, "endset");
    return made_set;
  }

  Statement macro_statement() {
    if (depth_ > 1) throw ReadFailure{line_, "a macro inside of a statement is not supported"};
    Statement macro = made(StatementKind::kMacro);
    read_rest([&](ExpressionParser& words) {
      macro.text = words.expect_name();
      words.expect("(");
      while (!words.take(")")) {
        macro.names.push_back(words.expect_name());
        if (words.take("="))
          macro.expressions.push_back(words.choice());
        else if (!macro.expressions.empty())
          words.words().fail("expected a value for the parameter");
        if (!words.is(")")) words.expect(",");
      }
    });
    macros_.insert(macro.text);
    close(macro, "endmacro");
    return macro;
  }

  TagReader tags_;
  ReadOptions options_;
  std::string inside_;
  int line_ = 1, depth_ = 0, num_loops_ = 0;
  std::set<std::string> macros_;
  std::map<std::string, int> called_;
};

}  // namespace

std::vector<Statement> parse_template(std::string_view text, const ReadOptions& options) {
  std::string source = python::replace_all(python::replace_all(text, "\r\n", "\n"), "\r", "\n");
  if (options.is_chat && source.ends_with('\n')) source.pop_back();
  return StatementParser(source, options).parse_all();
}

}  // namespace espalier::text::jinja
