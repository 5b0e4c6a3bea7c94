// What BERT's and T5's data ask of tokenizers: pieces of Megatron's WordPiece, and the ids of special tokens.
#include "text/bert_tokenizer.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/support/oracle.h"
#include "text/megatron_options_test.h"

namespace espalier::text {
namespace bert_tokenizer_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Strings with the ids that Megatron-DeepSpeed's tokenizer gave.
TEST(BertTokenizer, IdsOfTheOracleAreEqual) {
  const fs::path folder = test::find_data("megatron-oracle/bert_t5");
  if (folder.empty()) GTEST_SKIP() << "no megatron-oracle/bert_t5";
  const auto lower = load_bert_tokenizer(folder / "vocab.txt", true, 100);
  const auto cased = load_bert_tokenizer(folder / "vocab.txt", false, 100);
  const Json cases = Json::parse(read_file(folder / "wordpiece.json"));
  ASSERT_GE(cases.size(), 5u);
  for (const Json& one : cases) {
    EXPECT_EQ(lower->encode(one["text"].get<std::string>()), one["lower_ids"].get<std::vector<int32_t>>())
        << one["text"];
    EXPECT_EQ(cased->encode(one["text"].get<std::string>()), one["cased_ids"].get<std::vector<int32_t>>())
        << one["text"];
  }
  const Json known = Json::parse(read_file(folder / "bert_t5.json"))["specials"];
  const NamedIds ids = lower->named_ids();
  EXPECT_EQ(ids.cls, known["cls"].get<int32_t>());
  EXPECT_EQ(ids.sep, known["sep"].get<int32_t>());
  EXPECT_EQ(ids.pad, known["pad"].get<int32_t>());
  EXPECT_EQ(ids.mask, known["mask"].get<int32_t>());
  EXPECT_EQ(ids.bos, known["bos"].get<int32_t>());
  EXPECT_EQ(ids.eos, known["eos"].get<int32_t>());
  EXPECT_EQ(lower->piece_to_id("<extra_id_0>"), known["sentinels_first_last"][0].get<int32_t>());
  EXPECT_EQ(lower->piece_to_id("<extra_id_99>"), known["sentinels_first_last"][1].get<int32_t>());
  EXPECT_EQ(lower->vocab_size(), known["vocab_size_with_100_extra"]);
}

TEST(BertTokenizer, EveryKindNamesWhatBertPutsIntoATextOrSaysThatItHasNone) {
  const auto megatron = load_tokenizer({.type = "SentencePieceTokenizer",
                                        .model_file = "tests/data/megatron_tokenizers/bpe_named/spm.model",
                                        .extra_ids = 3});
  EXPECT_EQ(megatron->named_ids().cls, megatron->piece_to_id("<CLS>"));
  EXPECT_EQ(megatron->named_ids().sep, megatron->piece_to_id("<SEP>"));
  EXPECT_EQ(megatron->named_ids().mask, megatron->piece_to_id("<MASK>"));
  EXPECT_TRUE(megatron->named_ids().text_end);
  EXPECT_NE(megatron->named_ids().text_end, megatron->named_ids().eos);  // </s> and <EOD>

  const NamedIds gpt2 = open_tokenizer("tests/data/gpt2-tiny/vocab.json")->named_ids();
  EXPECT_FALSE(gpt2.cls || gpt2.sep || gpt2.mask || gpt2.text_end);

  const fs::path folder = fs::temp_directory_path() / concat("espalier_bert_named_", ::getpid());
  fs::create_directories(folder);
  fs::copy_file("tests/data/megatron_tokenizers/hf_bert/tokenizer.json", folder / "tokenizer.json",
                fs::copy_options::overwrite_existing);
  write_file_atomically(folder / "tokenizer_config.json",
                        R"({"cls_token": "[CLS]", "sep_token": {"content": "[SEP]"}, "mask_token": "[MASK]"})");
  const auto hugging_face = open_tokenizer(folder);
  ASSERT_TRUE(hugging_face->piece_to_id("[CLS]"));
  EXPECT_EQ(hugging_face->named_ids().cls, hugging_face->piece_to_id("[CLS]"));
  EXPECT_EQ(hugging_face->named_ids().sep, hugging_face->piece_to_id("[SEP]"));
  EXPECT_EQ(hugging_face->named_ids().mask, hugging_face->piece_to_id("[MASK]"));
  fs::remove_all(folder);
}

}  // namespace bert_tokenizer_test
}  // namespace espalier::text
