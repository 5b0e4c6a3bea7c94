#include "text/token_bytes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/file.h"
#include "text/megatron_options_test.h"

namespace espalier::text {
namespace token_bytes_test {

using nlohmann::json;
namespace fs = std::filesystem;

int64_t sum_of(const std::vector<int32_t>& bytes, const std::vector<int32_t>& ids) {
  return std::accumulate(ids.begin(), ids.end(), int64_t{0},
                         [&](int64_t sum, int32_t id) { return sum + bytes.at(static_cast<size_t>(id)); });
}

// Texts that a tokenizer gives back as they were: the bytes of its ids are those of the text. Where a blank begins
// every text, or every word but the first follows one, one byte more.
void expect_bytes_of_texts(const Tokenizer& tokenizer, const std::string& name, bool is_exact) {
  const auto texts = json::parse(read_file("tests/data/tokenizers/texts.json")).get<std::vector<std::string>>();
  const std::vector<int32_t> bytes = bytes_of_ids(tokenizer);
  ASSERT_EQ(static_cast<int64_t>(bytes.size()), tokenizer.vocab_size());
  int compared = 0;
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = tokenizer.encode(text);
    if (text.empty() || tokenizer.decode(ids, true) != text || text.find("\uFFFD") != std::string::npos) continue;
    const int64_t found = sum_of(bytes, ids), expected = static_cast<int64_t>(text.size());
    EXPECT_GE(found, expected) << name << ": " << text;
    EXPECT_LE(found, expected + (is_exact ? 0 : 1)) << name << ": " << text;
    ++compared;
  }
  EXPECT_GT(compared, 10) << name;
}

TEST(TokenBytes, OfByteLevelVocabulariesAreThoseOfTheText) {
  for (const std::string name : {"gpt2", "bloom", "llama3", "o200k"}) {
    TokenizerOptions options;
    options.type = "PretrainedFromHF", options.name_or_path = "tests/data/tokenizers/" + name + "/tokenizer.json";
    if (!fs::exists(options.name_or_path)) continue;
    expect_bytes_of_texts(*load_tokenizer(options), name, true);
  }
  for (const std::string name : {"tiktoken_cl100k", "tiktoken_v1"})
    if (const fs::path folder = fs::path("tests/data/megatron_tokenizers") / name; fs::exists(folder))
      expect_bytes_of_texts(*load_tokenizer(read_megatron_options(folder)), name, true);
}

TEST(TokenBytes, OfSentencePieceCountTheBlankThatBeginsAText) {
  for (const std::string name : {"unigram_bytes", "bpe_llama2", "unigram"})
    if (const fs::path folder = fs::path("tests/data/megatron_tokenizers") / name; fs::exists(folder))
      expect_bytes_of_texts(*load_tokenizer(read_megatron_options(folder)), name, false);
}

TEST(TokenBytes, OfWordPieceCountTheBlankBeforeAWord) {
  const auto tokenizer = load_tokenizer(read_megatron_options("tests/data/megatron_tokenizers/bert_lower"));
  const std::vector<int32_t> bytes = bytes_of_ids(*tokenizer);
  const auto of = [&](const std::string& piece) {
    return bytes.at(static_cast<size_t>(tokenizer->piece_to_id(piece).value()));
  };
  EXPECT_EQ(of("[CLS]"), 0);
  EXPECT_EQ(of("[MASK]"), 0);
  int words = 0, parts = 0;
  for (int32_t id = 0; id < static_cast<int32_t>(tokenizer->vocab_size()); ++id) {
    const std::string piece = tokenizer->id_to_piece(id);
    if (piece.size() < 4 || !std::all_of(piece.end() - 2, piece.end(), [](char c) { return c >= 'a' && c <= 'z'; }))
      continue;
    const auto found = bytes[static_cast<size_t>(id)], size = static_cast<int32_t>(piece.size());
    if (piece.starts_with("##")) {
      EXPECT_EQ(found, size - 2) << piece;
      ++parts;
    } else if (std::all_of(piece.begin(), piece.end(), [](char c) { return c >= 'a' && c <= 'z'; })) {
      EXPECT_EQ(found, size + 1) << piece;
      ++words;
    }
  }
  EXPECT_GT(words, 3);
  EXPECT_GT(parts, 3);
}

TEST(TokenBytes, IdsThatAreNoTextHaveNone) {
  TokenizerOptions options;
  options.type = "NullTokenizer", options.vocab_size = 10;
  EXPECT_TRUE(bytes_of_ids(*load_tokenizer(options)).empty());
}

}  // namespace token_bytes_test
}  // namespace espalier::text
