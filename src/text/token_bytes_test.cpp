#include "text/token_bytes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "text/megatron_options_test.h"

namespace espalier::text {
namespace token_bytes_test {

using nlohmann::json;
namespace fs = std::filesystem;

// The first that is text begins it, after what stands for the beginning (<s>).
int64_t sum_of(const TextBytes& bytes, const std::vector<int32_t>& ids) {
  int64_t sum = 0;
  bool has_begun = false;
  for (const int32_t id : ids) {
    const int32_t one = (has_begun ? bytes.within : bytes.first).at(static_cast<size_t>(id));
    if (one == kNoText) continue;
    has_begun = true;
    sum += one;
  }
  return sum;
}

// Texts that a tokenizer gives back as they were: the bytes of its ids are those of the text.
void expect_bytes_of_texts(const Tokenizer& tokenizer, const std::string& name) {
  const auto texts = json::parse(read_file("tests/data/tokenizers/texts.json")).get<std::vector<std::string>>();
  const TextBytes bytes = text_bytes(tokenizer);
  ASSERT_EQ(static_cast<int64_t>(bytes.within.size()), tokenizer.vocab_size());
  ASSERT_EQ(bytes.first.size(), bytes.within.size());
  int compared = 0;
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = tokenizer.encode(text);
    if (text.empty() || tokenizer.decode(ids, true) != text || text.find("\uFFFD") != std::string::npos) continue;
    EXPECT_EQ(sum_of(bytes, ids), static_cast<int64_t>(text.size())) << name << ": " << text;
    ++compared;
  }
  EXPECT_GT(compared, 10) << name;
}

TEST(TokenBytes, OfByteLevelVocabulariesAreThoseOfTheText) {
  for (const std::string name : {"gpt2", "bloom", "llama3", "o200k"}) {
    TokenizerOptions options;
    options.type = "PretrainedFromHF", options.name_or_path = "tests/data/tokenizers/" + name + "/tokenizer.json";
    if (!fs::exists(options.name_or_path)) continue;
    expect_bytes_of_texts(*load_tokenizer(options), name);
  }
  for (const std::string name : {"tiktoken_cl100k", "tiktoken_v1"})
    if (const fs::path folder = fs::path("tests/data/megatron_tokenizers") / name; fs::exists(folder))
      expect_bytes_of_texts(*load_tokenizer(read_megatron_options(folder)), name);
}

TEST(TokenBytes, OfSentencePieceDoNotCountTheBlankThatBeginsAText) {
  for (const std::string name : {"unigram_bytes", "bpe_llama2", "unigram"})
    if (const fs::path folder = fs::path("tests/data/megatron_tokenizers") / name; fs::exists(folder))
      expect_bytes_of_texts(*load_tokenizer(read_megatron_options(folder)), name);
}

TEST(TokenBytes, OfWordPieceCountTheBlankBeforeAWord) {
  const auto tokenizer = load_tokenizer(read_megatron_options("tests/data/megatron_tokenizers/bert_lower"));
  const TextBytes bytes = text_bytes(*tokenizer);
  const auto of = [&](const std::string& piece) {
    return bytes.within.at(static_cast<size_t>(tokenizer->piece_to_id(piece).value()));
  };
  EXPECT_EQ(of("[CLS]"), kNoText);
  EXPECT_EQ(of("[MASK]"), kNoText);
  int words = 0, parts = 0;
  for (int32_t id = 0; id < static_cast<int32_t>(tokenizer->vocab_size()); ++id) {
    const std::string piece = tokenizer->id_to_piece(id);
    if (piece.size() < 4 || !std::all_of(piece.end() - 2, piece.end(), [](char c) { return c >= 'a' && c <= 'z'; }))
      continue;
    const auto found = bytes.within[static_cast<size_t>(id)], size = static_cast<int32_t>(piece.size());
    if (piece.starts_with("##")) {
      EXPECT_EQ(found, size - 2) << piece;
      ++parts;
    } else if (std::all_of(piece.begin(), piece.end(), [](char c) { return c >= 'a' && c <= 'z'; })) {
      EXPECT_EQ(found, size + 1) << piece;
      EXPECT_EQ(bytes.first[static_cast<size_t>(id)], size) << piece;
      ++words;
    }
  }
  EXPECT_GT(words, 3);
  EXPECT_GT(parts, 3);
}

TEST(TokenBytes, IdsThatAreNoTextHaveNone) {
  TokenizerOptions options;
  options.type = "NullTokenizer", options.vocab_size = 10;
  EXPECT_TRUE(text_bytes(*load_tokenizer(options)).within.empty());
}

}  // namespace token_bytes_test
}  // namespace espalier::text
