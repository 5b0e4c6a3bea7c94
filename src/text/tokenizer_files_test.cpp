// What readers of tokenizers' files answer to wrong ones, and what files say besides pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "text/chat_tokenizer.h"
#include "text/internal/base64.h"
#include "text/internal/chars_map.h"
#include "text/internal/grapheme.h"
#include "text/null_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tiktoken_tokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_fingerprint.h"

namespace espalier::text {
namespace tokenizer_files_test {

using testing::HasSubstr;
namespace fs = std::filesystem;
const fs::path kData = "tests/data/megatron_tokenizers";

class TokenizerFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("espalier_files_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string message(const std::string& name, const std::string& content) {
    write_file_atomically(folder_ / name, content);
    return message_of([&] { open_tokenizer(folder_ / name); });
  }
  template <class Use>
  std::string message_of(Use&& use) {
    try {
      use();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path folder_;
};

// A protobuf field of bytes.
std::string field(int number, const std::string& content) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(content.size())} + content;
}
std::string piece(const std::string& text, int type) {
  return field(1, field(1, text) + std::string{0x18, static_cast<char>(type)});
}

TEST_F(TokenizerFiles, SentencePieceModelsThatAreWrong) {
  const std::string whole = read_file(kData / "unigram" / "spm.model");
  EXPECT_THAT(message("a.model", whole.substr(0, whole.size() - 10)), HasSubstr("bytes of a field, "));
  EXPECT_THAT(message("a.model", piece("a", 1) + piece("b", 1)),
              HasSubstr("none of the 2 pieces is of type unknown (2)"));
  EXPECT_THAT(message("a.model", piece("u", 2) + piece("b", 1) + piece("b", 1)), HasSubstr("piece 2 'b' occurs twice"));
  EXPECT_THAT(message("a.model", piece("u", 2) + piece("v", 2)),
              HasSubstr("piece 1 'v' is a second unknown piece, after 0"));
  EXPECT_THAT(message("a.model", piece("u", 2) + piece("b", 7)),
              HasSubstr("at byte 12: piece 'b' has type 7, expected 1 to 6"));
  EXPECT_THAT(message("a.model", piece("u", 2) + field(1, field(1, "\xFF"))),
              HasSubstr("at byte 9: field 1 (piece) is not UTF-8 from its byte 0 on"));
  EXPECT_THAT(message("a.model", piece("u", 2) + field(2, std::string{0x18, 9})),
              HasSubstr("model_type is 9, expected 1"));
  EXPECT_THAT(message("a.model", piece("u", 2) + piece("<0x4>", 6)),
              HasSubstr("is of type byte; expected the form <0x0A>"));
  EXPECT_THAT(message("a.model", piece("u", 2) + field(2, std::string{static_cast<char>(0x98), 2, 1})),
              HasSubstr("byte_fallback is set, but there is no piece <0x00>"));
  EXPECT_THAT(message("a.model", piece("u", 2) + piece("ab", 5) + field(2, std::string{0x18, 2})),
              HasSubstr("piece 1 'ab' is unused (type 5), which is not supported in a BPE model"));
  EXPECT_THAT(message("a.model", piece("u", 2) + field(3, field(2, std::string(12, '\x09')))),
              HasSubstr("normalizer_spec.precompiled_charsmap: the trie should have 151587081 bytes"));
  write_file_atomically(folder_ / "a.model", piece("u", 2) + piece("b", 1));
  EXPECT_THAT(message_of([&] { load_sentencepiece_tokenizer(folder_ / "a.model", SentencePieceWrapper::kLlama2); }),
              HasSubstr("Llama2Tokenizer begins every text with '<s>', which is not a control piece"));
}

TEST_F(TokenizerFiles, BertVocabulariesThatAreWrong) {
  EXPECT_THAT(message("vocab.txt", "[UNK]\n[PAD]\n"), HasSubstr("(2 lines) has no line '[CLS]'"));
  EXPECT_THAT(message("vocab.txt", "a\nb\n a \n"), HasSubstr("line 3: 'a' is in line 1 already"));
  EXPECT_THAT(message("vocab.txt", "a\n\xC3(\n"), HasSubstr("at byte 2: expected UTF-8"));
}

TEST_F(TokenizerFiles, RanksThatAreWrong) {
  const std::string good = read_file(kData / "tiktoken_cl100k" / "cl100k_base.tiktoken");
  EXPECT_THAT(message("cl100k_base.tiktoken", "YQ== 0\nYg==1\n"),
              HasSubstr("line 2: expected \"BASE64 RANK\", found 'Yg==1'"));
  EXPECT_THAT(message("cl100k_base.tiktoken", "YQ== 0\nYg== 0\n"), HasSubstr("line 2: rank 0 occurs twice"));
  EXPECT_THAT(message("cl100k_base.tiktoken", "YQ== 0\nYQ== 1\n"),
              HasSubstr("line 2: the token of rank 1 is that of rank 0"));
  EXPECT_THAT(message("cl100k_base.tiktoken", "YQ== 0\n"), HasSubstr("no token is the byte 0x00; all 256 are needed"));
  EXPECT_THAT(message("own.tiktoken", good), HasSubstr("--tiktoken-pattern is missing; use gpt2, r50k_base"));
  EXPECT_THAT(message("cl100k_base.tiktoken", R"([{"rank": 1, "token_bytes": "YQ=="}])"),
              HasSubstr("[0]: rank 1, expected 0"));
  const TiktokenOptions many = {.file = kData / "tiktoken_v1" / "vocab.json", .pattern = "v1", .vocab_size = 5000};
  EXPECT_THAT(message_of([&] { load_tiktoken_tokenizer(many); }),
              HasSubstr("--vocab-size 5000 with 1000 special tokens"));
}

TEST_F(TokenizerFiles, OptionsThatAreMissing) {
  const auto said = [this](const TokenizerOptions& options) { return message_of([&] { load_tokenizer(options); }); };
  EXPECT_THAT(said({.type = "Llama2Tokenizer"}), HasSubstr("Llama2Tokenizer needs --tokenizer-model (a .model file)"));
  EXPECT_THAT(said({.type = "BertWordPieceCase"}), HasSubstr("needs --vocab-file (vocab.txt)"));
  EXPECT_THAT(said({.type = "NullTokenizer"}), HasSubstr("needs --vocab-size"));
  EXPECT_THAT(said({.type = "Own"}), HasSubstr("'Own' is not known; use GPT2BPETokenizer, PretrainedFromHF"));
  EXPECT_THAT(said({.type = "NullTokenizer", .vocab_size = 0}),
              HasSubstr("--vocab-size 0 for NullTokenizer: use 1 to"));
}

TEST_F(TokenizerFiles, ATokenizerMovesWithItsFiles) {
  const TokenizerOptions options = {
      .type = "SentencePieceTokenizer", .model_file = kData / "bpe_named" / "spm.model", .extra_ids = 3};
  const auto tokenizer = load_tokenizer(options);
  for (const auto& [name, path] : tokenizer->files()) fs::copy_file(path, folder_ / name);
  const auto moved = load_tokenizer(moved_to(options, folder_));
  EXPECT_EQ(moved->vocab_size(), tokenizer->vocab_size());
  EXPECT_EQ(moved->encode("abab <extra_id_2> x"), tokenizer->encode("abab <extra_id_2> x"));
  EXPECT_EQ(moved->eod(), moved->piece_to_id("<EOD>"));
}

TEST_F(TokenizerFiles, ChatTemplatesAreReadAndKept) {
  fs::copy_file(kData / "hf_words" / "tokenizer.json", folder_ / "tokenizer.json");
  write_file_atomically(
      folder_ / "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool", "template": "T"}, {"name": "default", "template": "D"}]})");
  EXPECT_EQ(open_tokenizer(folder_)->chat_template(), "D");
  EXPECT_EQ(chat_template_origin(*open_tokenizer(folder_)),
            (folder_ / "tokenizer_config.json").string() + ": chat_template");
  write_file_atomically(folder_ / "chat_template.jinja", "{{ messages }}");
  const auto tokenizer = open_tokenizer(folder_);
  EXPECT_EQ(tokenizer->chat_template(), "{{ messages }}");
  EXPECT_EQ(chat_template_origin(*tokenizer), (folder_ / "chat_template.jinja").string());
  EXPECT_THAT(tokenizer->files(), testing::Contains(testing::Pair("chat_template.jinja", testing::_)));
}

// A chat template writes special tokens by their names, and the begin of a text too: nothing is added to it.
TEST(EncodeMarked, FindsSpecialTokensAndAddsNone) {
  const auto llama3 =
      load_tokenizer({.type = "PretrainedFromHF", .name_or_path = "tests/data/tokenizers/llama3/tokenizer.json"});
  const int32_t bos = llama3->piece_to_id("<s>").value();
  const std::vector<int32_t> added = llama3->encode("<s>Hello, you"), marked = encode_marked(*llama3, "<s>Hello, you");
  EXPECT_EQ(marked[0], bos);
  EXPECT_NE(marked[1], bos);
  EXPECT_EQ(std::vector<int32_t>(added.begin() + 1, added.end()), marked);
  EXPECT_EQ(added[0], bos);
  const std::string folder = "tests/data/gpt2-tiny/";
  const auto gpt2 = load_tokenizer(
      {.type = "GPT2BPETokenizer", .vocab_file = folder + "vocab.json", .merge_file = folder + "merges.txt"});
  std::vector<int32_t> wanted = gpt2->encode("One");
  wanted.push_back(gpt2->eod().value());
  for (const int32_t id : gpt2->encode(" two")) wanted.push_back(id);
  EXPECT_EQ(encode_marked(*gpt2, "One<|endoftext|> two"), wanted);
  EXPECT_EQ(encode_marked(*gpt2, ""), std::vector<int32_t>());
}

// Wherever a text is cut between ids, what comes after continues what came before.
TEST(DecodeContinuation, GivesTheTextThatIsMissing) {
  const auto sentencepiece =
      load_tokenizer({.type = "Llama2Tokenizer", .model_file = kData / "bpe_llama2" / "spm.model"});
  const auto null = make_null_tokenizer(500);
  const std::vector<std::pair<const Tokenizer*, std::string>> cases = {{sentencepiece.get(), "the cat and the dog"},
                                                                       {null.get(), "5 0 99 317"}};
  for (const auto& [tokenizer, text] : cases) {
    const std::vector<int32_t> ids = tokenizer->encode(text);
    ASSERT_GE(ids.size(), 4u);
    for (auto cut = ids.begin() + 1; cut <= ids.end(); ++cut) {
      const std::vector<int32_t> context(ids.begin(), cut), rest(cut, ids.end());
      EXPECT_EQ(tokenizer->decode(context, true) + decode_continuation(*tokenizer, context, rest), text);
    }
  }
}

TEST(NullTokenizer, TakesIdsAsText) {
  const auto tokenizer = make_null_tokenizer(100);
  EXPECT_EQ(tokenizer->encode("5 0 99 100"), (std::vector<int32_t>{5, 0, 99, 100}));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{5, 0, 99}), "5 0 99");
  EXPECT_EQ(tokenizer->vocab_size(), 101);
  EXPECT_EQ(tokenizer->eod(), 100);
  EXPECT_EQ(fingerprint(*tokenizer), fingerprint(*make_null_tokenizer(100)));
  EXPECT_NE(fingerprint(*tokenizer), fingerprint(*make_null_tokenizer(101)));
  try {
    tokenizer->encode("5  7");
    FAIL() << "two blanks were taken";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected ids from 0 to 100 with one space between them, found '' at byte 2"));
  }
}

TEST(Base64, IsReadWholeOrNotAtAll) {
  EXPECT_EQ(internal::decode_base64("TWFu"), "Man");
  EXPECT_EQ(internal::decode_base64("TWE="), "Ma");
  EXPECT_EQ(internal::decode_base64("TQ=="), "M");
  EXPECT_EQ(internal::decode_base64(""), "");
  for (const char* wrong : {"TWF", "TQ=", "TR==", "T===", "TWE=TWFu", "TW-u"})
    EXPECT_FALSE(internal::decode_base64(wrong)) << wrong;
}

TEST(Grapheme, JoinsWhatUnicodeJoins) {
  const auto first = [](const std::string& text) { return internal::grapheme_bytes(text); };
  EXPECT_EQ(first("ab"), 1u);
  EXPECT_EQ(first("\r\nx"), 2u);
  EXPECT_EQ(first("e\u0301\u0323x"), 5u);
  EXPECT_EQ(first("\u1100\u1161\u11A8x"), 9u);           // Hangul
  EXPECT_EQ(first("\u0915\u094D\u0937x"), 9u);           // a conjunct
  EXPECT_EQ(first("\U0001F469\u200D\U0001F680x"), 11u);  // a picture of two
  EXPECT_EQ(first("a\u200D\U0001F680"), 4u);
}

}  // namespace tokenizer_files_test
}  // namespace espalier::text
