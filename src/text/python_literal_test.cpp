// Against CPython's repr() and ast.literal_eval().
#include "text/python_literal.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier::text::python {
namespace python_literal_test {

TEST(PythonLiteral, ValuesArePrintedAsPythonDoes) {
  const Json value = {nullptr,
                      true,
                      -3,
                      0.5,
                      1e16,
                      "it's",
                      "\"q\" it's",
                      "a\n\t\\\u00e9\u00a0\u200b\U0001f600\x7f\U000e0001",
                      {{"k", {1, Json::array()}}},
                      Json::object()};
  EXPECT_EQ(python_repr(value),
            "[None, True, -3, 0.5, 1e+16, \"it's\", '\"q\" it\\'s', "
            "'a\\n\\t\\\\\u00e9\\xa0\\u200b\U0001f600\\x7f\\U000e0001', {'k': [1, []]}, {}]");
  EXPECT_EQ(python_str("it's"), "it's");
  EXPECT_EQ(python_str(false), "False");
  EXPECT_EQ(parse_literal(python_repr(value)), value);
}

TEST(PythonLiteral, LiteralsAreReadAsPythonDoes) {
  EXPECT_EQ(parse_literal(" ['''a\"b'\nc''', \"d\" 'e', 'f\\'\\x41\\u00e9\\101\\q\\\ng']"),
            (Json{"a\"b'\nc", "de", "f'A\u00e9A\\qg"}));
  EXPECT_EQ(parse_literal("(1, -2, +3.5, 1e3, .5,)"), (Json{1, -2, 3.5, 1000.0, 0.5}));
  EXPECT_EQ(parse_literal("( 'a' )"), "a");
  EXPECT_EQ(parse_literal("('a' , )"), Json({"a"}));
  EXPECT_EQ(parse_literal("()"), Json::array());
  EXPECT_EQ(parse_literal("00"), 0);
  EXPECT_EQ(parse_literal("{'a': None, \"b\": [True, False], }"), (Json{{"a", nullptr}, {"b", {true, false}}}));
  EXPECT_EQ(parse_literal("'''a\r\nb\rc'''"), "a\nb\nc");
}

TEST(PythonLiteral, WhatIsNoneIsRefused) {
  for (const char* text :
       {"", "x", "[1", "[1 2]", "'a", "'a\nb'", "'''a''", "'\\x4'", "'\\ud800'", "'\\N{BULLET}'", "{1: 2}", "{'a'}",
        "1 2", "f()", "1.2.3", "-", "007", "99999999999999999999", "__import__('os')"})
    EXPECT_THROW(parse_literal(text), UserError) << text;
  EXPECT_THROW(parse_literal(std::string(1000, '[')), UserError);
  try {
    parse_literal("['a', b]");
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "expected a value at byte 7 of the literal ['a', b]");
  }
}

}  // namespace python_literal_test
}  // namespace espalier::text::python
