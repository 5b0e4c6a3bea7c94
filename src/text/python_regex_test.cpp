// Expected values are those that CPython 3.11's re gives.
#include "text/python_regex.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier::text::python {
namespace python_regex_test {

using Matches = std::vector<std::vector<std::string>>;

Matches find_all(const std::string& expression, const std::string& text) {
  return Regex(expression, "f.yaml:1").find_all(text);
}

TEST(PythonRegex, FindsGroupsOrWholeMatches) {
  EXPECT_EQ(find_all(R"(#### (\-?[0-9\.\,]+))", "a #### 1,2 b #### -3"), (Matches{{"1,2"}, {"-3"}}));
  EXPECT_EQ(find_all(R"((-?[$0-9.,]{2,})|(-?[0-9]+))", "7 and 12."), (Matches{{"", "7"}, {"12.", ""}}));
  EXPECT_EQ(find_all(R"([a-c]+)", "abxc"), (Matches{{"ab"}, {"c"}}));
  EXPECT_EQ(find_all(R"(^(.*?)(?=\n|$))", "one\ntwo"), (Matches{{"one"}}));
  EXPECT_EQ(find_all(R"((?<=answer is )(.*)(?=.))", "the answer is (B)."), (Matches{{"(B)"}}));
}

TEST(PythonRegex, EmptyMatchesMayFollowOthers) {
  EXPECT_EQ(find_all("x*", "axb"), (Matches{{""}, {"x"}, {""}, {""}}));
  EXPECT_EQ(find_all("", "é"), (Matches{{""}, {""}}));
  EXPECT_EQ(Regex("b|x*", "f").remove_all("abxc"), "ac");
}

TEST(PythonRegex, ClassesAreUnicodes) {
  EXPECT_EQ(find_all(R"(\w+)", "đá, naïve"), (Matches{{"đá"}, {"naïve"}}));
  EXPECT_EQ(find_all(R"(\s)", "a\x1c\xc2\xa0"), (Matches{{"\x1c"}, {"\xc2\xa0"}}));
  EXPECT_EQ(find_all(R"([\s]\S)", "\x1fx"), (Matches{{"\x1fx"}}));
  EXPECT_EQ(find_all(R"((?<=정답은)\s*[(]?(A|B)[)]?)", "정답은 (B)입니다."), (Matches{{"B"}}));
}

TEST(PythonRegex, WhatPcreReadsInAnotherWayIsTranslated) {
  EXPECT_EQ(find_all(R"(a{,2}b)", "aaab"), (Matches{{"aab"}}));
  EXPECT_EQ(find_all(R"(a{,x)", "a{,x"), (Matches{{"a{,x"}}));
  EXPECT_EQ(find_all(R"([[:a]+)", "[:ab"), (Matches{{"[:a"}}));
  EXPECT_EQ(find_all(R"([]x]+)", "x]y"), (Matches{{"x]"}}));
  EXPECT_EQ(find_all(R"(\u00e9\x41\101)", "éAA"), (Matches{{"éAA"}}));
  EXPECT_EQ(find_all(R"((.)\1)", "aabcc"), (Matches{{"a"}, {"c"}}));
  EXPECT_EQ(find_all(R"(b\Z)", "b\n"), Matches{});
  EXPECT_EQ(find_all(R"(b$)", "b\n"), (Matches{{"b"}}));
  EXPECT_EQ(find_all(R"(a\v)", "a\n"), Matches{});
  EXPECT_EQ(Regex(R"((?s).*#### )", "f").remove_all("a\nb #### 7"), "7");
}

TEST(PythonRegex, WhatPythonDoesNotHaveIsRefused) {
  for (const char* const expression : {R"(\p{L})", R"(a\K)", "(?|a)", "(?<n>a)", "(*UTF)a", "a(?i)b", "(?x) a", "(",
                                       "[", R"(\q)", R"(a\)", R"(\x4)", "(?P>n)"})
    try {
      Regex(expression, "f.yaml:3");
      FAIL() << expression;
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find("f.yaml:3: the regular expression '"), 0U) << error.what();
    }
}

TEST(PythonRegex, EscapesWhatHasAMeaning) {
  EXPECT_EQ(escape("a.b (c)-é/'"), R"(a\.b\ \(c\)\-é/')");
  EXPECT_EQ(find_all(escape("1+1=2?\n"), "1+1=2?\n"), (Matches{{"1+1=2?\n"}}));
}

}  // namespace python_regex_test
}  // namespace espalier::text::python
