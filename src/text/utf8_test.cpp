#include "text/utf8.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace espalier::text {
namespace utf8_test {

struct Repaired {
  std::string text;
  int64_t num_replaced;
};

Repaired repaired(const std::string& text) {
  std::string storage;
  Repaired result{"", 0};
  result.text = std::string(repair_utf8(text, storage, result.num_replaced));
  return result;
}

// The Unicode standard's table 3-8 to 3-11, which Python's errors="replace" follows.
TEST(Utf8, EveryLongestBrokenStartBecomesOneReplacement) {
  const std::pair<std::string, std::string> kCases[] = {{"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                                                         "A",
                                                         "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
                                                         "A"},
                                                        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                                                         "A",
                                                         "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
                                                         "A"},
                                                        {"\xF4\x91\x92\x93\xFF"
                                                         "A\x80\xBF"
                                                         "B",
                                                         "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
                                                         "A\uFFFD\uFFFD"
                                                         "B"},
                                                        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                                                         "A",
                                                         "\uFFFD\uFFFD\uFFFD\uFFFD"
                                                         "A"},
                                                        {"abcdefgh\xF0\x9F\x98", "abcdefgh\uFFFD"},
                                                        {"\xC3", "\uFFFD"}};
  for (const auto& [broken, expected] : kCases) {
    const Repaired found = repaired(broken);
    EXPECT_EQ(found.text, expected);
    EXPECT_EQ(found.num_replaced,
              static_cast<int64_t>(to_utf32(expected).size() - to_utf32(expected).find(kReplacement)) -
                  std::count(expected.begin(), expected.end(), 'A') -
                  std::count(expected.begin(), expected.end(), 'B'));
  }
}

TEST(Utf8, ValidTextIsNotCopied) {
  const std::string text = "a\u00E9\u20AC\U0001F600\uFFFD\U0010FFFF and some more";
  std::string storage;
  int64_t num_replaced = 0;
  EXPECT_EQ(repair_utf8(text, storage, num_replaced).data(), text.data());
  EXPECT_EQ(num_replaced, 0);
}

TEST(Utf8, CodePointsComeBack) {
  const std::u32string codes = U"\u0001\u007F\u0080\u07FF\u0800\uFFFF\U00010000\U0010FFFF";
  std::string text;
  for (const char32_t code : codes) append_utf8(code, text);
  EXPECT_EQ(to_utf32(text), codes);
  EXPECT_EQ(decode_utf8(previous_utf8(text.data() + text.size())).code, 0x10FFFFu);
}

}  // namespace utf8_test
}  // namespace espalier::text
