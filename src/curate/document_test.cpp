#include "curate/document.h"

#include <gtest/gtest.h>

namespace espalier::curate {
namespace {

std::string round_trip(const std::string& line, const std::string& key = "text") {
  Document document;
  std::string reason, out;
  int64_t num_replaced = 0;
  if (!parse_document(line, key, document, reason, num_replaced)) return "refused: " + reason;
  append_json(document, key, out);
  return out;
}

TEST(CurateDocument, OtherValuesStayAsTheyStood) {
  const std::string line =
      R"({"id": 1.50, "text": "a\"\\b", "n": [1, {"x": "}]\""}, -0e5], "big": 123456789012345678901234567890, "t": true})";
  EXPECT_EQ(round_trip(line), line);
  EXPECT_EQ(round_trip(R"({"text":"a"})"), R"({"text": "a"})");
  EXPECT_EQ(round_trip(" { \"a\" : NaN ,\t\"text\" : \"\" } "), R"({"a": NaN, "text": ""})");
  EXPECT_EQ(round_trip(R"({"content": "c", "text": 5})", "content"), R"({"content": "c", "text": 5})");
}

TEST(CurateDocument, OfARepeatedKeyTheLastValueCounts) {
  EXPECT_EQ(round_trip(R"({"a": 1, "text": "x", "a": 2, "text": "y"})"), R"({"a": 2, "text": "y"})");
  EXPECT_EQ(round_trip(R"({"\u0074ext": "x", "\u00e9": 1})"), "{\"text\": \"x\", \"\xc3\xa9\": 1}");
}

TEST(CurateDocument, MetadataIsReadAndSet) {
  Document document;
  std::string reason, out;
  int64_t num_replaced = 0;
  ASSERT_TRUE(
      parse_document(R"({"url": "http:\/\/a\u00e9", "n": 3, "text": "t"})", "text", document, reason, num_replaced));
  EXPECT_EQ(document.metadata.text("url"), "http://a\xc3\xa9");
  EXPECT_EQ(document.metadata.text("n"), std::nullopt);
  EXPECT_EQ(document.metadata.json("n"), "3");
  EXPECT_EQ(document.metadata.text("none"), std::nullopt);
  document.metadata.set("n", "four");
  document.metadata.set("m", 0.5);
  append_json(document, "text", out);
  EXPECT_EQ(out, R"({"url": "http:\/\/a\u00e9", "n": "four", "text": "t", "m": 0.5})");
}

TEST(CurateDocument, RefusesWhatPythonRefuses) {
  EXPECT_EQ(round_trip("[1]"), "refused: The record is not an object with the wanted keys");
  EXPECT_EQ(round_trip("{\"text\": \"a\"} x"), "refused: Extra data");
  EXPECT_EQ(round_trip("{\"text\": \"a\", }").substr(0, 9), "refused: ");
}

}  // namespace
}  // namespace espalier::curate
