#include "text/hf_tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace espalier::text {
namespace hf_tokenizer_test {

using nlohmann::json;

// What tests/oracle/tokenizers_oracle.py wrote: a folder per tokenizer, the texts beside them.
class OracleTokenizer : public testing::TestWithParam<std::filesystem::path> {};

std::string shown(const std::string& text) { return json(text.substr(0, 400)).dump(-1, ' ', true, json::error_handler_t::replace); }

TEST_P(OracleTokenizer, GivesTheIdsAndTextsOfTokenizers) {
  const auto texts = json::parse(read_file(GetParam().parent_path() / "texts.json")).get<std::vector<std::string>>();
  const json expected = json::parse(read_file(GetParam() / "expected.json"));
  ASSERT_EQ(texts.size(), expected.size());
  const auto tokenizer = load_hf_tokenizer(GetParam());
  const auto encoder = tokenizer->new_encoder();
  int failures = 0;
  for (size_t i = 0; i < texts.size() && failures < 5; ++i) {
    const auto ids = expected[i].at("ids").get<std::vector<int32_t>>();
    std::vector<int32_t> found;
    encoder->encode(texts[i], found);
    const std::string whole = expected[i].value("text", texts[i]);
    const std::string shorn = expected[i].value("without_special", whole);
    EXPECT_EQ(found, ids) << "text " << i << ": " << shown(texts[i]);
    EXPECT_EQ(tokenizer->decode(ids), whole) << "text " << i << ": " << shown(texts[i]);
    if (expected[i].contains("without_special")) {
      EXPECT_EQ(tokenizer->decode(ids, true), shorn) << "text " << i << ": " << shown(texts[i]);
    }
    failures += HasNonfatalFailure() ? 1 : 0;
  }
}

std::vector<std::filesystem::path> oracle_folders() {
  std::vector<std::filesystem::path> roots = {"tests/data/tokenizers"};
  if (const char* fresh = std::getenv("ESPALIER_FRESH_ORACLES")) roots.push_back(std::filesystem::path(fresh) / "tokenizers");
  std::vector<std::filesystem::path> folders;
  for (const auto& root : roots) {
    if (!std::filesystem::exists(root)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      if (entry.is_directory()) folders.push_back(entry.path());
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

INSTANTIATE_TEST_SUITE_P(All, OracleTokenizer, testing::ValuesIn(oracle_folders()), [](const auto& info) {
  const bool fresh = info.param.parent_path() != "tests/data/tokenizers";
  return (fresh ? "fresh_" : "") + info.param.filename().string();
});

}  // namespace hf_tokenizer_test
}  // namespace espalier::text
