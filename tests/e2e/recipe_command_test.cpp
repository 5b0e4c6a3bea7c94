// espalier recipe: what it writes trains.
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace espalier {
namespace recipe_command_test {

class RecipeCommand : public Command {
 protected:
  std::string data() const { return root() + "/tests/data/owt-20_text_document"; }
};

// 25,267 tokens, read four times, with 200 steps or more.
TEST_F(RecipeCommand, WritesARecipeThatTrains) {
  const std::string vocabulary = root() + "/tests/data/gpt2-tiny/";
  const Outcome outcome =
      bash(concat("set -e; export OMP_WAIT_POLICY=passive; espalier recipe --depth 1 --vocab-size 5000 --seq-length 32 "
                  "--data-path ",
                  data(),
                  " --output r.toml; espalier train gpt --recipe r.toml --tokenizer-type GPT2BPETokenizer "
                  "--vocab-file ",
                  vocabulary, "vocab.json --merge-file ", vocabulary,
                  "merges.txt --num-threads 1 --exit-interval 3; espalier recipe --depth 1 --vocab-size 5000 "
                  "--seq-length 32 --json --data-path ",
                  data()));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.errors.find("wrote r.toml: "), std::string::npos) << outcome.errors;
  EXPECT_NE(outcome.errors.find("iteration        3/"), std::string::npos) << outcome.errors;
  EXPECT_NE(outcome.output.find("\"tokens\":101068"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("\"epochs\":4.0"), std::string::npos) << outcome.output;
}

TEST_F(RecipeCommand, ATokenizerSaysHowLargeTheVocabularyIs) {
  const std::string tokenizer = root() + "/tests/data/tokenizers/";
  const Outcome outcome = bash(concat("for f in ", tokenizer,
                                      "*/tokenizer.json; do espalier recipe --depth 2 "
                                      "--tokenizer-name-or-path $f | grep -c tokenizer_name_or_path; break; done"));
  EXPECT_EQ(outcome.output, "1\n") << outcome.errors;
}

TEST_F(RecipeCommand, WhatCannotBeIsSaid) {
  const Outcome outcome = bash(
      "espalier recipe; echo $?; espalier recipe --depth 0; echo $?; espalier recipe --depth 4 --json --output r; echo "
      "$?; espalier recipe --depth 4 --data-path nothing; echo $?; ls");
  EXPECT_EQ(outcome.output, "2\n2\n2\n66\n") << outcome.errors;
  EXPECT_NE(outcome.errors.find("--depth 0 is not from 1 to 256"), std::string::npos) << outcome.errors;
}

}  // namespace recipe_command_test
}  // namespace espalier
