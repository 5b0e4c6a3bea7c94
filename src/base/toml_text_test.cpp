#include "base/toml_text.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

uint32_t line_of_error(const std::string& text) {
  try {
    parse_toml_text(text, "a.toml");
  } catch (const toml::parse_error& error) {
    return error.source().begin.line;
  }
  return 0;
}

TEST(TomlText, AHeaderWithoutAKeyIsAnErrorOfItsLine) {
  for (const char* header : {"[=x]", "[\x7foutput]", "[ ,]", "[[=x]]", "[\xc3\xbc]", "[.x]"})
    EXPECT_EQ(line_of_error(std::string("a = 1\n[b]\nc = 2\n") + header + "\n"), 4u) << header;
}

TEST(TomlText, ListsThatSpanLinesAreNoHeaders) {
  const std::string text = "a = [\n  [1, 2],\n  [\"x\"],\n  [],\n]\n[[b]]\nc = 1\n";
  EXPECT_EQ(line_of_error(text), 0u);
  EXPECT_EQ(line_of_error(text + "[=x]\n"), 8u);
}

// toml++ left it to the compiler what happens then.
TEST(TomlText, LettersBeyondAsciiAreNoBlanks) {
  EXPECT_EQ(line_of_error("a = 1 \u00fc\n"), 1u);
  EXPECT_EQ(line_of_error("\n\u0398 = 1\n"), 2u);
  EXPECT_EQ(line_of_error("a = \"\u00fc\" # \u00fc\n"), 0u);
}

TEST(TomlText, OtherErrorsKeepTheirPlace) { EXPECT_EQ(line_of_error("a = 1\nb =\n"), 2u); }

}  // namespace
}  // namespace espalier
