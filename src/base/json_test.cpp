#include "base/json.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

std::string json_refusal(const std::string& text) {
  try {
    parse_json(text, "f.json");
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadData);
    return error.what();
  }
  return "no error";
}

TEST(OutsideJson, NestsToTheBoundAndNoDeeper) {
  EXPECT_EQ(json_refusal(std::string(64, '[') + std::string(64, ']')), "no error");
  EXPECT_EQ(json_refusal(std::string(65, '[') + std::string(65, ']')),
            "f.json: line 1, column 65: lists and objects nest more than 64 deep, which no file of this kind needs");
  std::string objects = "{\"a\":\n";
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(json_refusal(objects),
            "f.json: line 2, column 316: lists and objects nest more than 64 deep, which no file of this kind needs");
}

TEST(OutsideJson, BracketsInTextDoNotCount) {
  EXPECT_EQ(json_refusal("{\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\": 1}"), "no error");
}

TEST(OutsideJson, IsRefusedWithPlaceAndWithoutTheLibrarysWords) {
  EXPECT_EQ(json_refusal("{\n  \"a\": x}"), "f.json: line 2, column 8: expected JSON, found 'x'");
  EXPECT_EQ(json_refusal("{train_size: 8}"),
            "f.json: line 1, column 2: expected JSON, found 'train_size' without quotes");
  EXPECT_EQ(json_refusal("[1, nan]"), "f.json: line 1, column 5: expected JSON, found 'nan' without quotes");
  EXPECT_EQ(json_refusal("{\"a\": 1"), "f.json: expected JSON, found the end of the text too early; it may be cut off");
  EXPECT_EQ(json_refusal(" \n"), "f.json: expected JSON, found nothing");
  EXPECT_EQ(json_refusal("[\"\xff\"]"), "f.json: line 1, column 3: expected JSON, found byte 0xff");
  EXPECT_EQ(json_refusal("[1e999]"), "f.json: holds a number that is too large to be one");
}

}  // namespace
}  // namespace espalier
