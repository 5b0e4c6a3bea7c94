#include "base/console.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace espalier {
namespace {

TEST(Console, WidthCountsColumnsNotBytes) {
  EXPECT_EQ(display_width("abc"), 3U);
  EXPECT_EQ(display_width("häß"), 3U);
  EXPECT_EQ(display_width("日本"), 4U);
  EXPECT_EQ(display_width("e\u0301"), 1U);
  EXPECT_EQ(display_width("▁▂█"), 3U);
}

TEST(Console, LinesBreakAtBlanksAndInsideWordsThatAreTooLong) {
  EXPECT_EQ(wrap_text("one two three", 0, 2, 8), "one two\n  three");
  EXPECT_EQ(wrap_text("a|bb|ccc", 0, 0, 5), "a|bb|\nccc");
  EXPECT_EQ(wrap_text("abcdefgh", 0, 1, 5), "abcd\n efgh");
  EXPECT_EQ(wrap_text("word", 7, 2, 8), "word") << "the first line is begun: its first word stays";
}

TEST(Console, ColoursAreForbiddenAndForcedByTheEnvironment) {
  ASSERT_EQ(setenv("CLICOLOR_FORCE", "1", 1), 0);
  EXPECT_EQ(styled(Stream::kOutput, Style::kBold, "x"), "\033[1mx\033[0m");
  ASSERT_EQ(setenv("NO_COLOR", "1", 1), 0);
  EXPECT_EQ(styled(Stream::kOutput, Style::kBold, "x"), "x");
  unsetenv("NO_COLOR");
  ASSERT_EQ(setenv("CLICOLOR_FORCE", "0", 1), 0);
  EXPECT_EQ(shows_colours(Stream::kError), is_terminal(Stream::kError));
  unsetenv("CLICOLOR_FORCE");
}

}  // namespace
}  // namespace espalier
