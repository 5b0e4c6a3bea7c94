#include "base/json_fields.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

using Json = nlohmann::json;

std::string error_of(const Json& json) {
  try {
    read_fields("a.json", [&] {
      const auto rows = json.at("rows").get<int64_t>();
      return rows + json.at("list").at(1).get<int64_t>();
    });
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadData);
    return error.what();
  }
  return "";
}

TEST(JsonFields, WhatIsMissingOrOfAnotherTypeIsSaidInOurWords) {
  const std::string end = "; the file is damaged, or another program wrote it";
  EXPECT_EQ(error_of({{"rows", 1}, {"list", {1, 2}}}), "");
  EXPECT_EQ(error_of({{"rowz", 1}}), "a.json: 'rows' is missing" + end);
  EXPECT_EQ(error_of({{"rows", "1"}}), "a.json: expected a value of type number, found string" + end);
  EXPECT_EQ(error_of({{"rows", 1}, {"list", {1}}}), "a.json: a list is too short" + end);
  EXPECT_EQ(error_of(Json::array({1})), "a.json: expected an object or a list, found another kind of value" + end);
}

TEST(JsonFields, ABrokenLineIsNotJson) {
  EXPECT_THROW(read_fields("a.json", [] { return Json::parse("{\"a\":"); }), UserError);
}

}  // namespace
}  // namespace espalier
