#include "text/internal/serde_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "text/hf_tokenizer.h"

namespace espalier::text::internal {
namespace serde_json_test {

using nlohmann::json;

// What tests/oracle/tokenizers_oracle.py wrote; its fresh cases too where there are any.
std::vector<json> oracles() {
  std::vector<json> read = {json::parse(read_file("tests/data/tokenizers/scores.json"))};
  if (const char* fresh = std::getenv("ESPALIER_FRESH_ORACLES")) {
    read.push_back(json::parse(read_file(std::filesystem::path(fresh) / "tokenizers" / "scores.json")));
  }
  return read;
}

TEST(SerdeJson, RoundsNumbersAsTokenizersDoes) {
  for (const json& oracle : oracles()) {
    for (const json& pair : oracle.at("numbers")) {
      const auto text = pair[0].get<std::string>();
      const double expected = std::strtod(pair[1].get<std::string>().c_str(), nullptr);
      const json list = parse_serde_json("[" + text + "]", "a test");
      EXPECT_EQ(list[0].get<double>(), expected) << text;
      EXPECT_EQ(serde_number(text), expected) << text;
    }
  }
}

TEST(SerdeJson, PathsOfAboutTheSameScoreAreChosenAsTokenizersDoes) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("espalier_serde_" + std::to_string(::getpid()) + ".json");
  for (const json& oracle : oracles()) {
    write_file_atomically(file, oracle.at("tokenizer").get<std::string>());
    EXPECT_EQ(load_hf_tokenizer(file)->encode(oracle.at("text").get<std::string>()),
              oracle.at("ids").get<std::vector<int32_t>>());
  }
  std::filesystem::remove(file);
}

TEST(SerdeJson, BuildsTheValueThatAnyReaderBuilds) {
  const std::string text = R"( {"a": [1, -2, [], {}, null, true, false, "\u00e9\n"], "b": {"c": {"d": [[0.5]]}, "e": 3},
      "same": 1, "same": [2], "": 18446744073709551615} )";
  EXPECT_EQ(parse_serde_json(text, "a test"), json::parse(text));
  EXPECT_EQ(parse_serde_json("7", "a test"), json(7));
}

std::string message(const std::string& text) {
  try {
    parse_serde_json(text, "x.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "read";
}

TEST(SerdeJson, RefusesWhatIsNoJsonAndWhatIsNestedTooDeep) {
  EXPECT_THAT(message("{"), testing::HasSubstr("'x.json': "));
  EXPECT_THAT(message("[1, 2] 3"), testing::HasSubstr("'x.json': "));
  EXPECT_THAT(message("[1e999]"), testing::HasSubstr("'x.json': "));
  EXPECT_THAT(message("[\"\xff\"]"), testing::HasSubstr("'x.json': "));
  EXPECT_EQ(message(std::string(127, '[') + std::string(127, ']')), "read");
  EXPECT_EQ(message(std::string(1'000'000, '[')), "'x.json' is nested more than 127 deep");
}

}  // namespace serde_json_test
}  // namespace espalier::text::internal
