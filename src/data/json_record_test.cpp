#include "data/json_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/document_reader.h"

namespace espalier::data {
namespace {

int64_t characters_before(const std::string& record, int64_t byte) {
  return std::count_if(record.begin(), record.begin() + byte, [](char unit) { return (unit & 0xc0) != 0x80; });
}

// tests/oracle/json_records.py wrote what Python's json.loads does with each record.
TEST(JsonRecord, AcceptsAndRejectsWhatPythonDoes) {
  std::ifstream cases("tests/data/json_records.jsonl");
  JsonRecord strict({"text"}, /*replace_lone_surrogates=*/false);
  JsonRecord lenient({"text"}, /*replace_lone_surrogates=*/true);
  std::string line;
  int64_t num_cases = 0;
  while (std::getline(cases, line)) {
    const nlohmann::json expected = nlohmann::json::parse(line);
    const std::string record = expected["record"];
    ++num_cases;
    if (expected.contains("text")) {
      ASSERT_TRUE(lenient.parse(record)) << line << "\n" << lenient.problem().reason;
      EXPECT_EQ(lenient.text(0), expected["text"].get<std::string>()) << line;
      EXPECT_EQ(strict.parse(record), !expected.contains("lone")) << line;
      continue;
    }
    ASSERT_FALSE(strict.parse(record)) << line;
    ASSERT_FALSE(lenient.parse(record)) << line;
    if (expected.contains("raises")) {
      EXPECT_EQ(strict.problem().at_byte, -1) << line << "\n" << strict.problem().reason;
      continue;
    }
    EXPECT_EQ(strict.problem().reason, expected["says"].get<std::string>()) << line;
    ASSERT_GE(strict.problem().at_byte, 0) << line;
    EXPECT_EQ(characters_before(record, strict.problem().at_byte), expected["char"].get<int64_t>()) << line;
  }
  EXPECT_GT(num_cases, 1000);
}

// What upstream's worker did with single lines; for JSON errors also what Python said and where.
TEST(JsonRecord, FindsMalformedTheLinesThatMegatronFailsOn) {
  std::ifstream file("tests/data/megatron-oracle/preprocess/line_errors.json");
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_EQ(cases.size(), 20u);
  JsonRecord parser({"text"}, /*replace_lone_surrogates=*/false);
  for (const nlohmann::json& expected : cases) {
    const std::string line = expected["line"];
    EXPECT_EQ(parser.parse(line), expected.contains("ids")) << expected;
    if (!expected.contains("says") || expected["raises"] != "JSONDecodeError") continue;
    const std::string says = expected["says"];
    EXPECT_EQ(says.find(parser.problem().reason + ": line "), 0u) << expected << parser.problem().reason;
    EXPECT_NE(says.find(concat("(char ", characters_before(line, parser.problem().at_byte), ")")), std::string::npos)
        << says;
  }
}

TEST(JsonRecord, SaysWhatIsWrongWithAKey) {
  JsonRecord parser({"text", "title"}, /*replace_lone_surrogates=*/false);
  const auto reason = [&](const std::string& record) {
    EXPECT_FALSE(parser.parse(record)) << record;
    return parser.problem().reason;
  };
  EXPECT_EQ(reason(R"({"text": "a"})"), "No key 'title'");
  EXPECT_EQ(reason(R"({"title": "a", "text": null})"), "The value of 'text' is null, not a string");
  EXPECT_EQ(reason(R"({"title": ["a"], "text": "b"})"), "The value of 'title' is a list, not a string");
  EXPECT_EQ(reason(R"({"title": {}, "text": "b"})"), "The value of 'title' is an object, not a string");
  EXPECT_EQ(reason(R"({"title": -1, "text": "b"})"), "The value of 'title' is a number, not a string");
  EXPECT_EQ(reason(R"({"title": false, "text": "b"})"), "The value of 'title' is true or false, not a string");
  EXPECT_EQ(reason(R"({"title": "\ud83d!", "text": "b"})"),
            "The value of 'title' holds \\ud83d, half of a surrogate pair");
  EXPECT_EQ(reason("[]"), "The record is not an object with the wanted keys");
  ASSERT_TRUE(parser.parse(R"({"title": "\ud83d\ude00", "text": "b", "x": "\ud83d"})"));
  EXPECT_EQ(parser.text(1), "\U0001f600");
}

TEST(JsonRecord, CountsTheLoneSurrogatesItReplaces) {
  JsonRecord parser({"text"}, /*replace_lone_surrogates=*/true);
  ASSERT_TRUE(parser.parse(R"({"text": "\ud800 \udfff\ud800", "x": "\ud800"})"));
  EXPECT_EQ(parser.text(0), "\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(parser.num_replaced(), 3);
}

TEST(JsonRecord, LeavesInvalidBytesAsTheyAre) {
  JsonRecord parser({"text"}, /*replace_lone_surrogates=*/false);
  ASSERT_TRUE(parser.parse("{\"text\": \"caf\xe9 \xed\xa0\x80\"}"));
  EXPECT_EQ(parser.text(0), "caf\xe9 \xed\xa0\x80");
}

TEST(JsonRecord, LimitsNestingAsPythonDoes) {
  JsonRecord parser({"text"}, /*replace_lone_surrogates=*/false);
  const auto nested = [](size_t depth) {  // the record itself is the first level
    return R"({"text": "x", "a": )" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_TRUE(parser.parse(nested(994)));
  EXPECT_FALSE(parser.parse(nested(995)));
  EXPECT_EQ(parser.problem().reason, "Nested too deeply");
  EXPECT_FALSE(parser.parse(nested(1000000)));
}

TEST(JsonRecord, FindsTheEndOfStringsOfAnyLength) {
  JsonRecord parser({"text"}, /*replace_lone_surrogates=*/false);
  for (size_t length = 0; length < 40; ++length) {
    const std::string text(length, '\x80');
    for (const char* escape : {"", "\\\""}) {
      const std::string record = "{\"text\": \"" + text + escape + "\", \"x\": \"" + text + "\"}";
      ASSERT_TRUE(parser.parse(record)) << length;
      EXPECT_EQ(parser.text(0), text + (*escape != '\0' ? "\"" : ""));
      EXPECT_FALSE(parser.parse("{\"text\": \"" + text + "\x1f" + text + "\"}")) << length;
      EXPECT_EQ(parser.problem().at_byte, static_cast<int64_t>(10 + length));
    }
  }
}

}  // namespace
}  // namespace espalier::data
