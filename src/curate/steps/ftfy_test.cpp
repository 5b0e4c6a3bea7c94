// Against ftfy 6.3.1 (tests/data/golden-use/ftfy.jsonl, by tests/oracle/ftfy_agreement.py), and by hand.
#include "curate/internal/run_fixture.h"

namespace espalier::curate {
namespace {

using test::apply;

std::string fixed(const std::string& text, const std::string& options = "") {
  return apply("ftfy", options, text).text();
}

TEST(Ftfy, RepairsAsFtfyDoes) {
  std::ifstream file("tests/data/golden-use/ftfy.jsonl");
  int num_cases = 0;
  for (std::string line; std::getline(file, line); ++num_cases) {
    const nlohmann::json golden = nlohmann::json::parse(line);
    EXPECT_EQ(fixed(golden["text"]), golden["fixed"]) << golden["kind"] << " " << golden["text"];
  }
  EXPECT_EQ(num_cases, 400);
}

TEST(Ftfy, LeavesWhatAnOptionKeeps) {
  EXPECT_EQ(fixed("cafÃ©"), "café");
  EXPECT_EQ(fixed("cafÃ©", "no_fix_encoding = true"), "cafÃ©");
  EXPECT_EQ(fixed("voilÃ  le travail"), "voilà le travail");
  EXPECT_EQ(fixed("voilÃ  le travail", "no_restore_byte_a0 = true"), "voilÃ  le travail");
  EXPECT_EQ(fixed("â€œ like this â€\ufffd", "no_uncurl_quotes = true"), "“ like this \ufffd");
  EXPECT_EQ(fixed("caf\u00c3\u00a9 日本"), "café 日本");
  EXPECT_EQ(fixed("cafÃ© 日本", "no_decode_inconsistent_utf8 = true"), "cafÃ© 日本");
  EXPECT_EQ(fixed("\u0093q\u0094", "no_uncurl_quotes = true"), "“q”");
  EXPECT_EQ(fixed("ﬁ", "no_fix_latin_ligatures = true"), "ﬁ");
  EXPECT_EQ(fixed("Ａ", "no_fix_character_width = true"), "Ａ");
  EXPECT_EQ(fixed("a\r\nb", "no_fix_line_breaks = true"), "a\r\nb");
  EXPECT_EQ(fixed("\x1b[1mx", "no_remove_terminal_escapes = true"), "[1mx");
  EXPECT_EQ(fixed("\ufeffx", "no_remove_control_chars = true"), "\ufeffx");
  EXPECT_EQ(fixed("e\u0301"), "\u00e9");
  EXPECT_EQ(fixed("e\u0301", "normalization = \"none\""), "e\u0301");
  EXPECT_EQ(fixed("\u00e9", "normalization = \"NFD\""), "e\u0301");
  EXPECT_EQ(fixed("x\u00b2", "normalization = \"NFKC\""), "x2");
}

TEST(Ftfy, UnescapesUntilALineIsHtml) {
  EXPECT_EQ(fixed("a &amp; b\n<i> &amp;\n&amp;"), "a & b\n<i> &amp;\n&amp;");
  EXPECT_EQ(fixed("<i> &amp;", "unescape_html = \"always\""), "<i> &");
  EXPECT_EQ(fixed("a &amp; b", "unescape_html = \"never\""), "a &amp; b");
}

TEST(Ftfy, GivesUpWhatHasNoEnd) {
  std::string text = "&";
  for (int layer = 0; layer < 1000; ++layer) text += "amp;";
  EXPECT_EQ(apply("ftfy", "", text).fate.reason, "too_complex");
}

// Long runs of what looks broken take linear time and no deep stack.
TEST(Ftfy, TakesLongRuns) {
  std::string broken, whole;
  for (int index = 0; index < 33333; ++index) {
    broken += "Ã©";
    whole += "é";
  }
  EXPECT_EQ(fixed(broken + "日"), whole + "日");
  EXPECT_EQ(fixed(""), "");
  EXPECT_EQ(fixed("\n\n"), "\n\n");
  EXPECT_EQ(fixed("aaaaaaa", "max_decode_length = 3"), "aaaaaaa");
}

TEST(Ftfy, SaysWhatIsWrong) {
  EXPECT_NE(test::problems_of("ftfy", "max_decode_length = 0"), "");
  EXPECT_NE(test::problems_of("ftfy", "normalization = \"NFX\""), "");
}

}  // namespace
}  // namespace espalier::curate
