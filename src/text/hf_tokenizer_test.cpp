#include "text/hf_tokenizer.h"

#include <gmock/gmock.h>
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

// What tests/oracle/tokenizers_oracle.py wrote: a folder per tokenizer, the texts next to them.
class OracleTokenizer : public testing::TestWithParam<std::filesystem::path> {};

std::string shown(const std::string& text) {
  return json(text.substr(0, 400)).dump(-1, ' ', true, json::error_handler_t::replace);
}

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
  if (const char* fresh = std::getenv("ESPALIER_FRESH_ORACLES"))
    roots.push_back(std::filesystem::path(fresh) / "tokenizers");
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

// A tokenizer of the letters a to e and "ab", changed by a JSON merge patch.
class HfFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("espalier_hf_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const char* patch) {
    json file = json::parse(R"({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null, "model": {"type": "BPE", "dropout": null, "unk_token": null,
        "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "ab": 5}, "merges": [["a", "b"]]}})");
    file.merge_patch(json::parse(patch));
    write_file_atomically(folder_ / "tokenizer.json", file.dump());
  }
  std::string message(const char* patch) {
    write(patch);
    try {
      load_hf_tokenizer(folder_);
    } catch (const UserError& error) {
      return error.what();
    }
    return "loaded";
  }

  std::filesystem::path folder_;
};

#define EXPECT_SAYS(patch, words) EXPECT_THAT(message(patch), testing::HasSubstr(words))

TEST_F(HfFiles, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_SAYS(R"({"model": {"type": "Own"}})",
              "tokenizer.json.model: 'Own' is not supported; supported: BPE, Unigram, WordPiece, WordLevel");
  EXPECT_SAYS(R"({"model": {"dropout": 0.1}})", "'dropout' must be null");
  EXPECT_SAYS(R"({"normalizer": {"type": "Own"}})", "normalizer: 'Own' is not supported");
  EXPECT_SAYS(R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Own"}]}})",
              "normalizer.normalizers[1]: 'Own' is not supported");
  EXPECT_SAYS(R"({"pre_tokenizer": {"type": "UnicodeScripts"}})", "pre_tokenizer: 'UnicodeScripts' is not supported");
  EXPECT_SAYS(R"({"post_processor": {"type": "Own"}})", "post_processor: 'Own' is not supported");
  EXPECT_SAYS(R"({"decoder": {"type": "Own"}})", "decoder: 'Own' is not supported");
}

TEST_F(HfFiles, RegularExpressionsOfAnotherMeaningAreRefused) {
  const auto said = [this](const std::string& expression) {
    const json patch = {
        {"pre_tokenizer",
         {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}}}};
    return message(patch.dump().c_str());
  };
  EXPECT_THAT(said("\\p{Han}+"), testing::HasSubstr("'\\p{Han}' (only general categories are) is not supported"));
  EXPECT_THAT(said("(?m:.)"), testing::HasSubstr("'(?m' is not supported"));
  EXPECT_THAT(said("a{1,2}+"), testing::HasSubstr("no possessive repeat in Oniguruma"));
  EXPECT_THAT(said("[[:alpha:]]"), testing::HasSubstr("a POSIX bracket is not supported"));
  EXPECT_THAT(said("(?i:\\p{Lu})"), testing::HasSubstr("a class of characters inside (?i) is not supported"));
  EXPECT_THAT(said("(?<=a+)b"), testing::HasSubstr("has an error: what a lookbehind looks for has no fixed length"));
  EXPECT_THAT(said("(a"), testing::HasSubstr("a '(' without its ')' is not supported"));
  EXPECT_THAT(said(std::string(1'000'000, '[')),
              testing::HasSubstr("a class nested more than 100 deep is not supported"));
  std::string intersections = "[";
  for (int i = 0; i < 300'000; ++i) intersections += "a&&";
  EXPECT_THAT(said(intersections), testing::HasSubstr("a class nested more than 100 deep is not supported"));
  EXPECT_EQ(said("\\p{Lu}|[^\\s&&[a-c]]{,2}?"), "loaded");
}

TEST_F(HfFiles, InconsistentFilesAreRefusedWithThePlace) {
  EXPECT_SAYS(R"({"version": "2.0"})", "'version' is \"2.0\", expected \"1.0\"");
  EXPECT_SAYS(R"({"model": null})", "tokenizer.json: 'model' is missing");
  EXPECT_SAYS(R"({"model": {"merges": [["a", "b"], ["b", "z"]]}})", "merges[1] needs 'z', which 'vocab' lacks");
  EXPECT_SAYS(R"({"model": {"merges": ["a b", "b c"]}})", "merges[1] needs 'bc', which 'vocab' lacks");
  EXPECT_SAYS(R"({"model": {"merges": ["a b c"]}})", "merges[0] is \"a b c\", expected two pieces");
  EXPECT_SAYS(R"({"model": {"vocab": {"x": 1}}})", "'b' and 'x' both have the id 1");
  EXPECT_SAYS(R"({"model": {"vocab": {"x": 16777217}}})",
              "the id of 'x' is 16777217, expected a whole number up to 16777216");
  EXPECT_SAYS(R"({"model": {"unk_token": "?"}})", "'unk_token' is '?', which 'vocab' lacks");
  EXPECT_SAYS(R"({"added_tokens": [{"id": 6, "content": "x"}]})", "added_tokens[0]: 'single_word' is missing");
  EXPECT_SAYS(R"({"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}],
      "special_tokens": {}}})",
              "'special_tokens' has no '<s>'");
}

TEST_F(HfFiles, TheEndOfDocumentIsTheConfiguredOne) {
  write("{}");
  EXPECT_EQ(load_hf_tokenizer(folder_)->eod(), std::nullopt);
  write_file_atomically(folder_ / "generation_config.json", R"({"eos_token_id": [3, 4]})");
  EXPECT_EQ(load_hf_tokenizer(folder_)->eod(), 3);
  write_file_atomically(folder_ / "special_tokens_map.json", R"({"eos_token": {"content": "c"}})");
  EXPECT_EQ(load_hf_tokenizer(folder_ / "tokenizer.json")->eod(), 2);
  write_file_atomically(folder_ / "tokenizer_config.json", R"({"eos_token": "ab"})");
  const auto tokenizer = load_tokenizer(
      {.type = "PretrainedFromHF", .vocab_file = "", .merge_file = "", .name_or_path = folder_.string()});
  EXPECT_EQ(tokenizer->eod(), 5);
  EXPECT_EQ(tokenizer->files().size(), 4u);
}

TEST_F(HfFiles, TruncationAndPaddingHaveNoEffect) {
  write(R"({"truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0},
            "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0,
                        "pad_token": "a"}})");
  EXPECT_EQ(load_hf_tokenizer(folder_)->encode("abcab"), (std::vector<int32_t>{5, 2, 5}));
}

TEST_F(HfFiles, AnAddedTokenGetsTheIdThatTokenizersGivesIt) {
  write(R"({"added_tokens": [{"id": 9, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true}]})");
  const auto tokenizer = load_hf_tokenizer(folder_);
  EXPECT_EQ(tokenizer->piece_to_id("<s>"), 6);
  EXPECT_EQ(tokenizer->vocab_size(), 7);
  EXPECT_EQ(tokenizer->special_ids(), (std::vector<int32_t>{6}));
}

TEST_F(HfFiles, AMegabyteInOneWordIsEncodedQuickly) {
  write("{}");
  std::string word;
  while (word.size() < (1u << 20)) word += "abcdeabba"[word.size() % 9];
  const auto tokenizer = load_hf_tokenizer(folder_);
  const std::vector<int32_t> ids = tokenizer->encode(word);
  EXPECT_GT(ids.size(), word.size() / 2);
}

TEST(OpenTokenizer, TakesAFileOrAFolder) {
  EXPECT_EQ(open_tokenizer("tests/data/gpt2-tiny")->vocab_size(), 5000);
  EXPECT_EQ(open_tokenizer("tests/data/gpt2-tiny/vocab.json")->eod(), 4999);
  EXPECT_EQ(open_tokenizer("tests/data/tokenizers/bloom")->kind(), "byte-level BPE; pieces of BLOOM's pattern");
  EXPECT_THROW(open_tokenizer("tests/data"), UserError);
}

}  // namespace hf_tokenizer_test
}  // namespace espalier::text
