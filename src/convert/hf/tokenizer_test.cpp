// The tokenizer of an exported model: which files it gets, which ids config.json names, and what is reported where
// transformers cannot have it.
#include "convert/hf/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "convert/formats.h"
#include "store/step_writer.h"
#include "text/hf_tokenizer.h"

namespace espalier::convert::tokenizer_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class ExportTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(run_);
    fs::create_directories(output_);
  }
  void TearDown() override { fs::remove_all(root_); }

  // A checkpoint with a tokenizer's files, and what its export has.
  ExportedTokenizer exported(const text::TokenizerOptions& options, const std::vector<std::string>& files) {
    std::vector<store::ExtraFile> extra;
    if (options.type != "NullTokenizer")
      for (const auto& [name, path] : text::load_tokenizer(options)->files())
        extra.push_back({"tokenizer/" + name, read_file(path)});
    for (const std::string& file : files)
      extra.push_back({"tokenizer/" + fs::path(file).filename().string(), read_file(file)});
    store::Manifest manifest;
    manifest.model = {
        .family = "gpt", .compute_type = "fp32", .vocab_size = 1, .padded_vocab_size = 1, .num_parameters = 0};
    store::write_step(run_, manifest, std::vector<store::TensorData>{}, extra);
    const store::StepReader reader(run_ / "step_00000000");
    return export_tokenizer(reader, options, {.codec = find_hf_codec("gpt2")}, output_);
  }
  json read_json(const char* name) const { return json::parse(read_file(output_ / name)); }

  const fs::path root_ = fs::temp_directory_path() / ("espalier_export_tokenizer_" + std::to_string(::getpid()));
  const fs::path run_ = root_ / "run", output_ = root_ / "hf";
};

TEST_F(ExportTokenizer, OfGpt2sTwoFilesHasWhatAutoTokenizerWants) {
  const ExportedTokenizer made = exported({.type = "GPT2BPETokenizer",
                                           .vocab_file = "tests/data/gpt2-tiny/vocab.json",
                                           .merge_file = "tests/data/gpt2-tiny/merges.txt"},
                                          {});
  EXPECT_EQ(made.notes, std::vector<std::string>());
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"})
    EXPECT_TRUE(fs::exists(output_ / name)) << name;
  EXPECT_EQ(read_json("tokenizer_config.json").at("eos_token"), "<|endoftext|>");
  EXPECT_EQ(made.ids.eos, read_json("vocab.json").at("<|endoftext|>").get<int32_t>());
  EXPECT_EQ(text::load_hf_tokenizer(output_)->eod(), made.ids.eos);
}

TEST_F(ExportTokenizer, OfSentencePieceHasItToo) {
  const ExportedTokenizer made =
      exported({.type = "Llama2Tokenizer", .model_file = "tests/data/megatron_tokenizers/bpe_llama2/spm.model"}, {});
  EXPECT_EQ(made.notes, std::vector<std::string>());
  EXPECT_TRUE(fs::exists(output_ / "tokenizer.json"));
  EXPECT_EQ(read_json("tokenizer_config.json").at("bos_token"), "<s>");
  EXPECT_EQ(made.ids.bos, 1);
  EXPECT_EQ(made.ids.eos, 2);
}

TEST_F(ExportTokenizer, OfWordPieceNamesTheTokensOfBert) {
  exported({.type = "BertWordPieceCase", .vocab_file = "tests/data/megatron_tokenizers/bert_cased/vocab.txt"}, {});
  const json config = read_json("tokenizer_config.json");
  EXPECT_EQ(config.at("cls_token"), "[CLS]");
  EXPECT_EQ(config.at("sep_token"), "[SEP]");
  EXPECT_EQ(config.at("mask_token"), "[MASK]");
}

// transformers wants the list, which this file lacks.
TEST_F(ExportTokenizer, HasAListOfAddedTokensAndAllElseOfItsFile) {
  const std::string file = "tests/data/megatron_tokenizers/hf_words/tokenizer.json";
  exported({.type = "PretrainedFromHF", .name_or_path = file}, {});
  json wanted = json::parse(read_file(file));
  ASSERT_FALSE(wanted.contains("added_tokens"));
  wanted["added_tokens"] = json::array();
  EXPECT_EQ(read_json("tokenizer.json"), wanted);
}

TEST_F(ExportTokenizer, SaysWhyThereIsNone) {
  const ExportedTokenizer word = exported(
      {.type = "GPTSentencePieceTokenizer", .model_file = "tests/data/megatron_tokenizers/word/spm.model"}, {});
  ASSERT_EQ(word.notes.size(), 1u);
  EXPECT_THAT(word.notes[0], HasSubstr("no tokenizer.json is written"));
  EXPECT_THAT(word.notes[0], HasSubstr("a model of whole words"));
  EXPECT_FALSE(fs::exists(output_ / "tokenizer.json"));
  EXPECT_FALSE(fs::exists(output_ / "tokenizer_config.json"));
  EXPECT_TRUE(fs::exists(output_ / "tokenizer.model"));
}

TEST_F(ExportTokenizer, OfIdsAloneNamesTheEnd) {
  text::TokenizerOptions options{.type = "NullTokenizer"};
  options.vocab_size = 30;
  const ExportedTokenizer made = exported(options, {});
  ASSERT_EQ(made.notes.size(), 1u);
  EXPECT_THAT(made.notes[0], HasSubstr("are not made from text"));
  EXPECT_EQ(made.ids.eos, 30);
}

TEST(NamedIds, FillWhatIsNotSaidAndLeaveWhatIs) {
  const text::NamedIds ids{.bos = 1, .eos = 2, .pad = std::nullopt};
  const json filled = json::parse(with_named_ids(R"({"eos_token_id": [7, 8], "bos_token_id": null, "x": 1})", ids));
  EXPECT_EQ(filled, json::parse(R"({"eos_token_id": [7, 8], "bos_token_id": 1, "x": 1})"));
  const json with_encoder = json::parse(with_named_ids(R"({"is_encoder_decoder": true})", ids));
  EXPECT_EQ(with_encoder.at("decoder_start_token_id"), 1);
  const json without_bos =
      json::parse(with_named_ids(R"({"is_encoder_decoder": true})", {.bos = {}, .eos = 2, .pad = 0}));
  EXPECT_EQ(without_bos.at("decoder_start_token_id"), 0);
}

}  // namespace
}  // namespace espalier::convert::tokenizer_test
