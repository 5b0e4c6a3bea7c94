#include "text/python_text.h"

#include <gtest/gtest.h>

namespace espalier::text::python {
namespace python_text_test {

using Words = std::vector<std::string_view>;

TEST(PythonText, BlanksAreThoseOfPython) {
  EXPECT_EQ(strip("\x1c \t\u00a0\u2003 a\u200b b \u3000\u0085\n"), "a\u200b b");
  EXPECT_EQ(strip(" \u3000\n\u0085a\u2028"), "a");
  EXPECT_EQ(strip_left("  a "), "a ");
  EXPECT_EQ(strip_right("  a "), "  a");
  EXPECT_EQ(strip(" \n "), "");
  EXPECT_EQ(strip_right("20 , ,", " ,"), "20");
  EXPECT_EQ(strip_right(" ,", " ,"), "");
  EXPECT_EQ(split_words(" a\u00a0b\n\nc "), (Words{"a", "b", "c"}));
  EXPECT_EQ(split_words(" "), Words());
}

// len(re.split(r"\s+", text))
TEST(PythonText, FieldsBetweenBlanksAreCounted) {
  EXPECT_EQ(count_fields(""), 1u);
  EXPECT_EQ(count_fields("a b"), 2u);
  EXPECT_EQ(count_fields(" a \n b\u2003c "), 5u);
}

TEST(PythonText, PositionsCountCharacters) {
  const std::string text = "\u00e9a\U0001f600b";
  EXPECT_EQ(num_characters(text), 4);
  EXPECT_EQ(slice(text, 1, 3), "a\U0001f600");
  EXPECT_EQ(slice(text, -2), "\U0001f600b");
  EXPECT_EQ(slice(text, 0, -1), "\u00e9a\U0001f600");
  EXPECT_EQ(slice(text, -9, 1), "\u00e9");
  EXPECT_EQ(slice(text, 3, 99), "b");
  EXPECT_EQ(slice(text, 3, 2), "");
  EXPECT_EQ(slice("", 0, -1), "");
}

TEST(PythonText, ReplacesFromTheLeftWithoutLookingBack) {
  EXPECT_EQ(replace_all("aaa", "aa", "a"), "aa");
  EXPECT_EQ(replace_all("a   b", "  ", " "), "a  b");
  EXPECT_EQ(replace_all("", "a", "b"), "");
}

TEST(PythonText, CapitalizeLowersTheRest) {
  EXPECT_EQ(capitalize("thEN THE \u00c9T\u00c9"), "Then the \u00e9t\u00e9");
  EXPECT_EQ(capitalize("\u01c6A"), "\u01c5a");  // a digraph has a title case
  EXPECT_EQ(capitalize("[header] A"), "[header] a");
  EXPECT_EQ(capitalize(""), "");
  EXPECT_EQ(lowercase("\u0130"), "i\u0307");
}

TEST(PythonText, NumbersArePrintedAsPythonDoes) {
  for (const auto& [value, text] : {std::pair{0.1, "0.1"},
                                    {1.0, "1.0"},
                                    {-0.0, "-0.0"},
                                    {1e-05, "1e-05"},
                                    {0.0001, "0.0001"},
                                    {100000.0, "100000.0"},
                                    {1e16, "1e+16"},
                                    {123456789012345680.0, "1.2345678901234568e+17"},
                                    {9007199254740993.0, "9007199254740992.0"},
                                    {2.0 / 3, "0.6666666666666666"}})
    EXPECT_EQ(repr(value), text);
}

}  // namespace python_text_test
}  // namespace espalier::text::python
