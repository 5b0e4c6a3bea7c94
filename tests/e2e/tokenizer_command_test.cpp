// `espalier tokenizer` as a user meets it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace espalier {
namespace {

class TokenizerCommand : public Command {
 protected:
  std::string data(const std::string& name) const { return root() + "/tests/data/" + name; }
  // `espalier tokenizer WORDS --tokenizer tests/data/NAME` with `input` on standard input.
  Outcome run(const std::string& words, const std::string& name, const std::string& input = "") {
    return bash(concat("printf '", input, "' | espalier tokenizer ", words, " --tokenizer ", data(name)));
  }
};

// By GPT-2's vocabulary: 39 is H, 695 ell, 78 o, 220 a blank, 2634 the two bytes of U+00E9.
TEST_F(TokenizerCommand, EncodesAndDecodesLines) {
  const Outcome ids = run("encode --jsonl", "gpt2-tiny/vocab.json", R"({"text": "Hello \\u00e9"}\n{"text": ""}\n)");
  EXPECT_EQ(ids.exit_code, 0) << ids.errors;
  EXPECT_EQ(ids.output, "{\"ids\": [39, 695, 78, 220, 2634]}\n{\"ids\": []}\n");
  const Outcome texts = run("decode --jsonl", "gpt2-tiny", R"({"ids": [39, 695, 78, 220, 2634, 4999]}\n)");
  EXPECT_EQ(texts.output, "{\"text\":\"Hello \u00e9<|endoftext|>\"}\n") << texts.errors;
}

TEST_F(TokenizerCommand, TakesPlainTextWhole) {
  const Outcome ids = run("encode", "gpt2-tiny", "Hello\\nH");
  EXPECT_EQ(ids.output, "39 695 78 198 39\n") << ids.errors;
  const Outcome text = run("decode --skip-special-tokens", "gpt2-tiny", "39 695 78 198 39 4999");
  EXPECT_EQ(text.output, "Hello\nH") << text.errors;
}

TEST_F(TokenizerCommand, CountsWhatIsNoUtf8) {
  const Outcome ids = run("encode --jsonl", "gpt2-tiny", R"({"text": "a\\ud800\xff"}\n)");
  EXPECT_EQ(ids.exit_code, 0);
  EXPECT_NE(ids.errors.find("2 places that are not UTF-8 became U+FFFD"), std::string::npos) << ids.errors;
}

TEST_F(TokenizerCommand, ShowsWhatATokenizerIs) {
  const Outcome shown = run("inspect --json", "tokenizers/bloom");
  EXPECT_EQ(shown.exit_code, 0) << shown.errors;
  const nlohmann::json facts = nlohmann::json::parse(shown.output);
  EXPECT_EQ(facts["vocab_size"], 380);
  EXPECT_EQ(facts["kind"], "byte-level BPE; pieces of BLOOM's pattern");
  EXPECT_EQ(facts["special_tokens"][2], (nlohmann::json{{"id", 2}, {"piece", "</s>"}}));
  EXPECT_TRUE(facts["eod"].is_null());
}

TEST_F(TokenizerCommand, RefusesWithTheLine) {
  const Outcome broken = run("encode --jsonl", "gpt2-tiny", R"({"text": "a"}\n{"txt": 1}\n)");
  EXPECT_EQ(broken.exit_code, 65);
  EXPECT_NE(broken.errors.find("standard input:2: "), std::string::npos) << broken.errors;
  EXPECT_EQ(run("encode", "none/tokenizer.json").exit_code, 66);
  EXPECT_EQ(run("decode", "gpt2-tiny", "12 x").exit_code, 65);
  const Outcome unknown = bash("espalier tokenizer encod");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.errors.find("did you mean encode?"), std::string::npos) << unknown.errors;
}

}  // namespace
}  // namespace espalier
