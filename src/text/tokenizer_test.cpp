#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "text/megatron_options_test.h"

namespace espalier::text {
namespace tokenizer_test {

using nlohmann::json;
namespace fs = std::filesystem;

std::string shown(const std::string& text) {
  return json(text.substr(0, 400)).dump(-1, ' ', true, json::error_handler_t::replace);
}

// What tests/oracle/megatron_tokenizers_oracle.py wrote: a folder per tokenizer.
class MegatronTokenizer : public testing::TestWithParam<fs::path> {};

TEST_P(MegatronTokenizer, GivesTheIdsAndTextsOfTheReference) {
  const fs::path own = GetParam().parent_path() / "texts.json";
  const fs::path file = fs::exists(own) ? own : fs::path("tests/data/tokenizers/texts.json");
  const auto texts = json::parse(read_file(file)).get<std::vector<std::string>>();
  const json expected = json::parse(read_file(GetParam() / "expected.json"));
  ASSERT_EQ(texts.size(), expected.size());
  const auto tokenizer = load_tokenizer(read_megatron_options(GetParam()));
  const auto encoder = tokenizer->new_encoder();
  int failures = 0;
  for (size_t i = 0; i < texts.size() && failures < 3; ++i) {
    const auto ids = expected[i].at("ids").get<std::vector<int32_t>>();
    std::vector<int32_t> found;
    encoder->encode(texts[i], found);
    EXPECT_EQ(found, ids) << "text " << i << ": " << shown(texts[i]);
    EXPECT_EQ(tokenizer->decode(ids), expected[i].value("text", texts[i])) << "text " << i << ": " << shown(texts[i]);
    failures += HasNonfatalFailure() ? 1 : 0;
  }
}

std::vector<fs::path> oracle_folders() {
  std::vector<fs::path> roots = {"tests/data/megatron_tokenizers"}, folders;
  if (const char* fresh = std::getenv("ESPALIER_FRESH_ORACLES"))
    roots.push_back(fs::path(fresh) / "megatron_tokenizers");
  for (const fs::path& root : roots) {
    if (!fs::exists(root)) continue;
    for (const auto& entry : fs::directory_iterator(root)) {
      if (entry.is_directory()) folders.push_back(entry.path());
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

INSTANTIATE_TEST_SUITE_P(All, MegatronTokenizer, testing::ValuesIn(oracle_folders()), [](const auto& info) {
  const bool fresh = info.param.parent_path() != "tests/data/megatron_tokenizers";
  return (fresh ? "fresh_" : "") + info.param.filename().string();
});

}  // namespace tokenizer_test
}  // namespace espalier::text
