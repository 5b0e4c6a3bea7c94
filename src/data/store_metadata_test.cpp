#include "data/store_metadata.h"

#include <gtest/gtest.h>

#include "data/internal/test_folder.h"
#include "data/merge.h"
#include "data/preprocess.h"
#include "data/token_store.h"

namespace espalier::data {
namespace {

using test_files::TestFolder;
using test_files::write_text;

std::unique_ptr<text::Tokenizer> tiny_tokenizer() { return text::open_tokenizer("tests/data/gpt2-tiny/vocab.json"); }

// GPT-2's with the merges of its first lines missing: the same pieces, other ids for the same text.
std::unique_ptr<text::Tokenizer> other(const TestFolder& folder) {
  write_text(folder / "vocab.json", read_file("tests/data/gpt2-tiny/vocab.json"));
  const std::string merges = read_file("tests/data/gpt2-tiny/merges.txt");
  write_text(folder / "merges.txt", merges.substr(0, merges.find('\n') + 1) + merges.substr(merges.size() / 2));
  return text::open_tokenizer(folder / "vocab.json");
}

std::string preprocessed(const TestFolder& folder, const std::string& name, const text::Tokenizer& tokenizer) {
  PreprocessOptions options;
  options.inputs = {"tests/data/owt-20.jsonl"};
  options.output_prefix = folder / name;
  options.append_eod = true;
  preprocess(options, tokenizer);
  return folder / name + "_text_document";
}

StoreMetadata metadata_of(const std::string& prefix) {
  const std::optional<StoreMetadata> metadata = read_metadata(*find_token_files(prefix));
  if (!metadata) throw std::runtime_error("no metadata next to " + prefix);
  return *metadata;
}

TEST(StoreMetadata, TellsWhatPreprocessKnew) {
  TestFolder folder;
  const StoreMetadata metadata = metadata_of(preprocessed(folder, "a", *tiny_tokenizer()));
  EXPECT_EQ(metadata.num_documents, 20);
  EXPECT_EQ(metadata.num_sequences, 20);
  EXPECT_EQ(metadata.num_tokens, 25267);
  ASSERT_TRUE(metadata.tokenizer);
  EXPECT_EQ(metadata.tokenizer->vocab_size, 5000);
  EXPECT_EQ(metadata.tokenizer->eod, 4999);
  EXPECT_EQ(metadata.options[0], (std::pair<std::string, std::string>("--input", "tests/data/owt-20.jsonl")));
  EXPECT_EQ(metadata.options[3], (std::pair<std::string, std::string>("--append-eod", "true")));
}

TEST(StoreMetadata, KeepsTheWordsThatNameTheTokenizer) {
  TestFolder folder;
  PreprocessOptions options;
  options.inputs = {"tests/data/owt-20.jsonl"};
  options.output_prefix = folder / "a";
  options.tokenizer_words = {"--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", "/a \"folder\"/vocab.json"};
  preprocess(options, *tiny_tokenizer());
  EXPECT_EQ(metadata_of(folder / "a_text_document").tokenizer->words, options.tokenizer_words);
  EXPECT_TRUE(metadata_of(preprocessed(folder, "b", *tiny_tokenizer())).tokenizer->words.empty());
}

TEST(StoreMetadata, ComparesTheTokenizersOfABlend) {
  TestFolder folder;
  const std::string good = preprocessed(folder, "a", *tiny_tokenizer()),
                    bad = preprocessed(folder, "b", *other(folder));
  TokenStoreWriter(folder / "silent", TokenType::kUint16).finish();
  EXPECT_TRUE(describe_differing_tokenizers({folder / "silent", good, "none", good}).empty());
  const std::vector<std::string> lines = describe_differing_tokenizers({folder / "silent", good, bad, good});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].find(concat("'", bad, "' was made with another tokenizer than '", good, "': ")), 0u) << lines[0];
}

TEST(StoreMetadata, NamesTheDataOfAnotherTokenizer) {
  TestFolder folder;
  const std::string good = preprocessed(folder, "a", *tiny_tokenizer()),
                    bad = preprocessed(folder, "b", *other(folder));
  TokenStoreWriter(folder / "silent", TokenType::kUint16).finish();
  const std::vector<std::string> lines =
      describe_other_tokenizers({good, bad, folder / "silent", "none"}, *tiny_tokenizer());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].find("'" + bad + "' was made with another tokenizer: "), 0u) << lines[0];
}

TEST(StoreMetadata, SentinelsBehindTheOtherIdsMakeNoOtherTokenizer) {
  TestFolder folder;
  text::TokenizerOptions options;
  options.type = "BertWordPieceLowerCase";
  options.vocab_file = "tests/data/megatron_tokenizers/bert_lower/vocab.txt";
  const std::string without = preprocessed(folder, "without", *text::load_tokenizer(options));
  options.extra_ids = 3;
  const std::string with = preprocessed(folder, "with", *text::load_tokenizer(options));
  EXPECT_TRUE(describe_other_tokenizers({without, with}, *text::load_tokenizer(options)).empty());
  options.type = "BertWordPieceCase";
  EXPECT_EQ(describe_other_tokenizers({without, with}, *text::load_tokenizer(options)).size(), 2u);
  EXPECT_EQ(describe_other_tokenizers({without}, *tiny_tokenizer()).size(), 1u);
}

TEST(StoreMetadata, MergedSetsKeepTheTokenizerTheyShare) {
  TestFolder folder;
  const std::string a = preprocessed(folder, "a", *tiny_tokenizer()), b = preprocessed(folder, "b", *tiny_tokenizer());
  const std::string c = preprocessed(folder, "c", *other(folder));
  merge({a, b}, folder / "ab");
  EXPECT_EQ(metadata_of(folder / "ab").num_documents, 40);
  EXPECT_EQ(metadata_of(folder / "ab").tokenizer->fingerprint, metadata_of(a).tokenizer->fingerprint);
  merge({a, c}, folder / "ac");
  EXPECT_FALSE(metadata_of(folder / "ac").tokenizer);
}

TEST(StoreMetadata, WhatBelongsToOtherFilesIsIgnored) {
  TestFolder folder;
  const std::string prefix = preprocessed(folder, "a", *tiny_tokenizer());
  const std::string before = read_file(prefix + ".meta.json");
  TokenStoreWriter(prefix, TokenType::kUint16).finish();  // a new pair of the name
  EXPECT_FALSE(std::filesystem::exists(prefix + ".meta.json"));
  const std::string deep = "{\"format\": " + std::string(300'000, '[') + std::string(300'000, ']') + "}";
  for (const std::string& content :
       {before, std::string("{"), std::string("[]"), std::string("{\"format\": 2}"), std::string(5000, '['), deep}) {
    write_text(prefix + ".meta.json", content);
    EXPECT_FALSE(read_metadata(*find_token_files(prefix))) << content.substr(0, 100);
  }
}

}  // namespace
}  // namespace espalier::data
