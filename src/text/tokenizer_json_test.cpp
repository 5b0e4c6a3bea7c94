// The tokenizer.json of every type of tokenizer, against the ids that its original gave: expected.json of the folders
// that tests/oracle/megatron_tokenizers_oracle.py and tokenizers_oracle.py wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "text/hf_tokenizer.h"
#include "text/internal/base64.h"
#include "text/megatron_options_test.h"
#include "text/null_tokenizer.h"
#include "text/tokenizer.h"

namespace espalier::text {
namespace tokenizer_json_test {

using nlohmann::json;
using testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kMegatron = "tests/data/megatron_tokenizers", kGpt2 = "tests/data/gpt2-tiny";

class TokenizerJsonOf : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("espalier_tokenizer_json_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::unique_ptr<Tokenizer> reloaded(const TokenizerJson& made) {
    write_file_atomically(folder_ / "tokenizer.json", made.text);
    return load_hf_tokenizer(folder_);
  }
  fs::path folder_;
};
using TokenizerJsonTest = TokenizerJsonOf;

// Special tokens that are in a text are found by tokenizers, and are plain text for most of Megatron's types.
bool holds_special_token(const std::string& text, const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = tokenizer.special_ids();
  return std::any_of(ids.begin(), ids.end(),
                     [&](int32_t id) { return text.find(tokenizer.id_to_piece(id)) != std::string::npos; });
}

struct Known {
  std::vector<size_t> texts;      // by number
  std::vector<std::string> with;  // texts that hold one of these
  const char* note;               // that says so
};

// Where tokenizers is known to give other ids.
const Known& known_differences(const std::string& name) {
  // Rules over several characters, of megatron_tokenizers_oracle.py, and for a character with a mark; a row of "ab",
  // whose cuts have equal sums.
  static const Known rules = {{36}, {"  ", "..", "\u0300", "\u0745"}, "tokenizers does not apply"};
  static const std::map<std::string, Known> known = {
      {"unigram", rules},
      {"bpe", rules},
      {"char", rules},
      {"unigram_bytes", {{40}, {}, "equal sums"}},
      {"unigram_across", {{36}, {}, "equal sums"}},
      {"bert_lower", {{21, 42}, {}, "no final sigma"}},
      {"bert_cased", {{}, {}, "a different version of Unicode"}},
  };
  static const Known none = {{}, {}, nullptr};
  const auto found = known.find(name);
  return found == known.end() ? none : found->second;
}

bool is_known(const Known& known, size_t number, const std::string& text) {
  return std::count(known.texts.begin(), known.texts.end(), number) > 0 ||
         std::any_of(known.with.begin(), known.with.end(),
                     [&](const std::string& part) { return text.find(part) != std::string::npos; });
}

TEST_P(TokenizerJsonOf, GivesTheIdsOfTheReference) {
  const fs::path folder = kMegatron / GetParam();
  const auto texts = json::parse(read_file("tests/data/tokenizers/texts.json")).get<std::vector<std::string>>();
  const json expected = json::parse(read_file(folder / "expected.json"));
  const auto original = load_tokenizer(read_megatron_options(folder));
  const TokenizerJson made = original->tokenizer_json();
  ASSERT_EQ(made.why_not, "");
  const Known& known = known_differences(GetParam());
  if (known.note == nullptr)
    EXPECT_EQ(made.notes, std::vector<std::string>());
  else
    EXPECT_THAT(made.notes, testing::Contains(HasSubstr(known.note)));
  const auto tokenizer = reloaded(made);
  EXPECT_EQ(tokenizer->vocab_size(), original->vocab_size());
  const std::vector<int32_t> found = tokenizer->special_ids(), wanted = original->special_ids();
  EXPECT_TRUE(std::includes(found.begin(), found.end(), wanted.begin(), wanted.end()));
  size_t compared = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (holds_special_token(texts[i], *original) || is_known(known, i, texts[i])) continue;
    ++compared;
    EXPECT_EQ(tokenizer->encode(texts[i]), expected[i].at("ids").get<std::vector<int32_t>>()) << i << json(texts[i]);
  }
  EXPECT_GT(compared, texts.size() / 2);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerJsonOf,
                         testing::Values("unigram_bytes", "unigram_across", "bpe_llama2", "bert_lower", "bert_cased",
                                         "tiktoken_cl100k", "tiktoken_o200k", "tiktoken_own", "tiktoken_v1",
                                         "tiktoken_v2", "hf_bert", "hf_unigram", "hf_words", "unigram", "bpe", "char"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(TokenizerJsonTest, OfGpt2GivesTheIdsOfTheTwoFiles) {
  const auto original = open_tokenizer(kGpt2 / "vocab.json");
  const TokenizerJson made = original->tokenizer_json();
  ASSERT_EQ(made.why_not, "");
  const auto tokenizer = reloaded(made);
  EXPECT_EQ(tokenizer->vocab_size(), original->vocab_size());
  for (const std::string& text :
       json::parse(read_file("tests/data/tokenizers/texts.json")).get<std::vector<std::string>>()) {
    if (holds_special_token(text, *original)) continue;
    EXPECT_EQ(tokenizer->encode(text), original->encode(text)) << json(text);
  }
  EXPECT_EQ(tokenizer->decode(original->encode("Hello,\n world")), "Hello,\n world");
}

TEST_F(TokenizerJsonTest, SaysWhyThereIsNone) {
  const auto why_not = [](const Tokenizer& tokenizer) {
    const TokenizerJson made = tokenizer.tokenizer_json();
    EXPECT_EQ(made.text, "");
    return made.why_not;
  };
  const auto of_case = [&](const char* name) {
    return why_not(*load_tokenizer(read_megatron_options(kMegatron / name)));
  };
  EXPECT_THAT(of_case("word"), HasSubstr("a model of whole words"));
  EXPECT_THAT(of_case("unigram_suffix"), HasSubstr("puts a space after the text"));
  EXPECT_THAT(of_case("unigram_named"), HasSubstr("user-defined pieces ('<sep>')"));
  EXPECT_THAT(of_case("bpe_named"), HasSubstr("user-defined pieces ('<sep>')"));
  EXPECT_THAT(why_not(*make_null_tokenizer(7)), HasSubstr("are not made from text"));
  fs::copy_file(kGpt2 / "vocab.json", folder_ / "vocab.json");
  write_file_atomically(folder_ / "merges.txt", "#version: 0.2\n\u0120 zq\n");
  EXPECT_THAT(why_not(*open_tokenizer(folder_ / "vocab.json")), HasSubstr("has no 'zq'"));
}

TEST_F(TokenizerJsonTest, NamesTheIdsOfTheTokenizer) {
  const NamedIds gpt2 = open_tokenizer(kGpt2 / "vocab.json")->named_ids();
  EXPECT_EQ(gpt2.eos, open_tokenizer(kGpt2 / "vocab.json")->piece_to_id("<|endoftext|>"));
  EXPECT_EQ(gpt2.bos, gpt2.eos);
  EXPECT_FALSE(gpt2.pad);
  const NamedIds llama = load_tokenizer(read_megatron_options(kMegatron / "bpe_llama2"))->named_ids();
  EXPECT_EQ(std::make_pair(llama.bos, llama.eos), std::make_pair(std::optional(1), std::optional(2)));
  write_file_atomically(folder_ / "tokenizer.json", read_file("tests/data/tokenizers/bloom/tokenizer.json"));
  const auto id = [&](const char* piece) { return open_tokenizer(folder_)->piece_to_id(piece); };
  write_file_atomically(folder_ / "tokenizer_config.json",
                        R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": "<pad>"})");
  const NamedIds bloom = open_tokenizer(folder_)->named_ids();
  ASSERT_TRUE(id("<s>") && id("</s>") && id("<pad>"));
  EXPECT_EQ(bloom.bos, id("<s>"));
  EXPECT_EQ(bloom.eos, id("</s>"));
  EXPECT_EQ(bloom.pad, id("<pad>"));
}

TEST_F(TokenizerJsonTest, Base64IsWhatItsReaderReads) {
  // RFC 4648, section 10.
  EXPECT_EQ(internal::encode_base64(""), "");
  EXPECT_EQ(internal::encode_base64("f"), "Zg==");
  EXPECT_EQ(internal::encode_base64("fo"), "Zm8=");
  EXPECT_EQ(internal::encode_base64("foob"), "Zm9vYg==");
  EXPECT_EQ(internal::encode_base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(internal::encode_base64("\xff\xfe\xfd"), "//79");
}

}  // namespace tokenizer_json_test
}  // namespace espalier::text
