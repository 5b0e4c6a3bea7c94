#include "text/gpt2_tokenizer.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace espalier::text {
namespace gpt2_tokenizer_test {

const std::string kTricky = "tests/data/megatron-oracle/preprocess/tricky/";

std::unique_ptr<Tokenizer> tiny() {
  return load_tokenizer({.type = "GPT2BPETokenizer",
                         .vocab_file = "tests/data/gpt2-tiny/vocab.json",
                         .merge_file = "tests/data/gpt2-tiny/merges.txt",
                         .name_or_path = ""});
}

// The ids of a .bin whose vocabulary is below 65,500: 16 bits each.
std::vector<int32_t> read_ids(const std::string& path) {
  const std::string content = read_file(path);
  std::vector<int32_t> ids;
  for (size_t at = 0; at < content.size(); at += 2) {
    uint16_t id;
    std::memcpy(&id, content.data() + at, 2);
    ids.push_back(id);
  }
  return ids;
}

// What Megatron-DeepSpeed's tool does with a file of records: the ids of every text, then an end of document.
std::vector<int32_t> encode_records(const Tokenizer& tokenizer, const std::string& path, bool append_eod) {
  std::ifstream lines(path);
  const auto encoder = tokenizer.new_encoder();
  std::vector<int32_t> ids;
  // Numbers that only Python's JSON knows accompany some texts.
  const std::regex numbers(R"(: ?(-?(NaN|Infinity)|1E400))");
  for (std::string line; std::getline(lines, line);) {
    line = std::regex_replace(line, numbers, ": 0");
    const auto text = nlohmann::json::parse(line).at("text").get<std::string>();
    encoder->encode(text, ids);
    if (append_eod && !text.empty()) ids.push_back(*tokenizer.eod());
  }
  return ids;
}

std::string decode(const Tokenizer& tokenizer, std::vector<int32_t> ids) { return tokenizer.decode(ids); }

TEST(Gpt2Tokenizer, EncodesTrickyUnicodeAsMegatron) {
  EXPECT_EQ(encode_records(*tiny(), kTricky + "unicode.jsonl", true),
            read_ids(kTricky + "unicode_tiny_text_document.bin"));
}

TEST(Gpt2Tokenizer, EncodesTrickyUnicodeAsMegatronWithTheFullVocabulary) {
  const std::string folder = "../shared/data/gpt2/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "needs " << folder;
  const auto gpt2 = load_gpt2_tokenizer(folder + "vocab.json", folder + "merges.txt");
  EXPECT_EQ(gpt2->vocab_size(), 50257);
  EXPECT_EQ(gpt2->eod(), 50256);
  EXPECT_EQ(encode_records(*gpt2, kTricky + "unicode.jsonl", true), read_ids(kTricky + "unicode_text_document.bin"));
}

TEST(Gpt2Tokenizer, EncodesOpenWebTextAsMegatron) {
  const std::string folder = "../shared/data/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "needs " << folder;
  EXPECT_EQ(encode_records(*tiny(), folder + "openwebtext-1000.jsonl", true),
            read_ids(folder + "owt_text_document.bin"));
}

TEST(Gpt2Tokenizer, DecodingGivesTheTextBack) {
  const auto tokenizer = tiny();
  const std::string text = "Grüße,\n\tмир! 你好 \U0001F600  \xC2\xA0 don't 12345";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(Gpt2Tokenizer, DecodingHalfACharacterGivesTheReplacementCharacter) {
  const auto tokenizer = tiny();
  std::vector<int32_t> ids = tokenizer->encode("\U0001F600");
  ASSERT_GT(ids.size(), 1u);
  ids.pop_back();
  EXPECT_EQ(tokenizer->decode(ids), "\xEF\xBF\xBD");
}

TEST(Gpt2Tokenizer, EndOfTextInsideATextIsPlainText) {
  const auto tokenizer = tiny();
  EXPECT_EQ(tokenizer->eod(), 4999);
  const std::vector<int32_t> ids = tokenizer->encode("a<|endoftext|>b");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 4999), 0);
  EXPECT_EQ(decode(*tokenizer, {64, 4999}), "a<|endoftext|>");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{64, 4999}, true), "a");
}

TEST(Gpt2Tokenizer, InvalidBytesBecomeReplacementCharactersAndAreCounted) {
  const auto tokenizer = tiny();
  const auto encoder = tokenizer->new_encoder();
  std::vector<int32_t> found, expected;
  encoder->encode("a\xFF\xE2\x82z\xED\xA0\x80", found);
  EXPECT_EQ(encoder->num_replaced(), 5);  // FF, the start E2 82, and each byte of the surrogate
  encoder->encode("a\uFFFD\uFFFDz\uFFFD\uFFFD\uFFFD", expected);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(encoder->num_replaced(), 5);
}

TEST(Gpt2Tokenizer, AMegabyteWithoutABlankIsEncodedQuickly) {
  const auto tokenizer = tiny();
  std::string word;
  for (int64_t i = 0; word.size() < (1u << 20); ++i) word += static_cast<char>('a' + i * i % 26);
  const std::vector<int32_t> ids = tokenizer->encode(word);
  EXPECT_EQ(tokenizer->decode(ids), word);
}

TEST(Gpt2Tokenizer, PiecesAndIdsAreEachOthersInverse) {
  const auto tokenizer = tiny();
  EXPECT_EQ(tokenizer->vocab_size(), 5000);
  EXPECT_EQ(tokenizer->id_to_piece(262), "\u0120the");
  EXPECT_EQ(tokenizer->piece_to_id("\u0120the"), 262);
  EXPECT_EQ(tokenizer->piece_to_id(" the"), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_piece(5000), "");
  EXPECT_EQ(tokenizer->id_to_piece(-1), "");
}

class Gpt2Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("espalier_gpt2_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string message_of_loading(const std::string& vocabulary, const std::string& merges) {
    write_file_atomically(folder_ / "vocab.json", vocabulary);
    write_file_atomically(folder_ / "merges.txt", merges);
    try {
      load_gpt2_tokenizer(folder_ / "vocab.json", folder_ / "merges.txt");
    } catch (const UserError& error) {
      return error.what();
    }
    return "loaded";
  }

  std::filesystem::path folder_;
};

TEST_F(Gpt2Files, APieceThatTheVocabularyLacksIsIdZero) {
  ASSERT_EQ(message_of_loading(R"({"?": 0, "a": 1, "b": 2, "c": 3, "abc": 4})", "#version\na b\nab c\n"), "loaded");
  const auto tokenizer = load_gpt2_tokenizer(folder_ / "vocab.json", folder_ / "merges.txt");
  EXPECT_EQ(tokenizer->encode("abc"), (std::vector<int32_t>{4}));
  EXPECT_EQ(tokenizer->encode("abba"), (std::vector<int32_t>{0, 2, 1}));  // "ab" is made, and unknown
  EXPECT_EQ(tokenizer->encode("z"), (std::vector<int32_t>{0}));
  EXPECT_EQ(tokenizer->eod(), std::nullopt);
}

TEST_F(Gpt2Files, BadFilesAreRefusedWithThePlace) {
  EXPECT_NE(message_of_loading("{\"a\": 0", "#\n").find("expected JSON"), std::string::npos);
  EXPECT_NE(message_of_loading("[1]", "#\n").find("expected an object of pieces and ids"), std::string::npos);
  EXPECT_NE(message_of_loading(R"({"a": 0, "b": 2})", "#\n").find("the id of 'b' is 2; the 2 pieces"),
            std::string::npos);
  EXPECT_NE(message_of_loading(R"({"a": 0})", "#\na a\na b c\n").find("line 3: expected two pieces, found 3"),
            std::string::npos);
}

TEST(LoadTokenizer, NamesWhatIsMissing) {
  const auto message = [](const TokenizerOptions& options) -> std::string {
    try {
      load_tokenizer(options);
    } catch (const UserError& error) {
      return error.what();
    }
    return "loaded";
  };
  EXPECT_NE(message({.type = "GPT2BPETokenizer", .vocab_file = "", .merge_file = "", .name_or_path = ""})
                .find("--merge-file"),
            std::string::npos);
  EXPECT_NE(message({.type = "Gpt2", .vocab_file = "", .merge_file = "", .name_or_path = ""}).find("PretrainedFromHF"),
            std::string::npos);
}

}  // namespace gpt2_tokenizer_test
}  // namespace espalier::text
