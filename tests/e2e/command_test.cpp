// The program as a user meets it: exit codes, streams, time, and that nothing is written when something is wrong.
#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/support/command.h"

namespace espalier {
namespace {

TEST_F(Command, MisspeltFlagIsNamedWithItsNeighbour) {
  const Outcome outcome = bash("espalier train gpt --hiden-size 64");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("unknown option --hiden-size; did you mean --hidden-size?"), std::string::npos)
      << outcome.errors;
  EXPECT_EQ(outcome.output, "");
}

TEST_F(Command, FiveProblemsComeInOneGoWithinTwoSecondsAndNothingIsWritten) {
  const Outcome outcome = bash(
      "espalier train gpt --num-layers 2 --hidden-size 50 --num-attention-heads 4 --seq-length 33 "
      "--max-position-embeddings 33 "
      "--micro-batch-size 3 --global-batch-size 7 --train-iters 10 --lr 1e-3 --lr-warmup-iters 12 --bf16 --fp16 "
      "--data-path nowhere --vocab-file v.json --merge-file m.txt --save run --save-interval 2 --tensorboard-dir tb");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_LT(outcome.seconds, 2);
  EXPECT_NE(outcome.errors.find("error: 7 problems:\n"), std::string::npos) << outcome.errors;
  for (const char* part :
       {"48 or 52", "6 or 9", "at most 9", "--fp16 (command line) and --bf16", "nowhere", "v.json", "m.txt"})
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << " in\n" << outcome.errors;
  EXPECT_TRUE(fs::is_empty(folder_ / "work"));
}

TEST_F(Command, ProblemsOfARecipeHaveFileAndLine) {
  const Outcome outcome = bash("printf '[size]\\nnum_layer = 2\\n' > a.toml; espalier train gpt --recipe a.toml");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("a.toml:2: unknown key num_layer; did you mean num_layers?"), std::string::npos)
      << outcome.errors;
}

TEST_F(Command, RecipesOfModelsTooLargeValidateAndSayHowManyProcessesTheyTake) {
  for (const auto& [name, processes] : {std::pair("bloom-176b", 48), std::pair("gpt3-175b", 128)}) {
    const std::string recipe = concat(root(), "/recipes/", name, ".toml");
    const Outcome valid = bash("espalier train gpt --validate-only --recipe " + recipe);
    EXPECT_EQ(valid.exit_code, 0) << valid.errors;
    const Outcome run = bash("espalier train gpt --recipe " + recipe);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_NE(run.errors.find(concat("one copy of the model needs ", processes)), std::string::npos) << run.errors;
    EXPECT_NE(run.errors.find(concat("espalier launch --nproc-per-node ", processes)), std::string::npos) << run.errors;
  }
}

TEST_F(Command, VocabularyThatTheEmbeddingDoesNotCoverIsRefusedAtOnce) {
  const std::string tokenizer = concat(root(), "/tests/data/gpt2-tiny/");
  const Outcome outcome =
      bash(concat("espalier train gpt --validate-only --recipe ", root(), "/recipes/tiny.toml --vocab-file ", tokenizer,
                  "vocab.json --merge-file ", tokenizer, "merges.txt --pad-vocab-size-to 1280"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.errors,
            "error: --pad-vocab-size-to 1280 is below the tokenizer's 5000 entries; use 5120 or more\n");
}

TEST_F(Command, ResolvedOptionsAreARecipe) {
  const Outcome first = bash("espalier train gpt --validate-only --lr 0.5 --recipe " + root() + "/recipes/tiny.toml");
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  write_file_atomically(folder_ / "work/config.toml", first.output);
  const Outcome again = bash("espalier train gpt --validate-only --recipe config.toml");
  EXPECT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_EQ(again.output, first.output);
  EXPECT_NE(first.output.find("lr = 0.5\n"), std::string::npos);
}

TEST_F(Command, MegatronsScriptNamesAreCommands) {
  const Outcome outcome = bash("espalier megatron/pretrain_gpt.py --num_layer=2");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("did you mean --num-layers?"), std::string::npos) << outcome.errors;
}

TEST_F(Command, UnknownCommandIsNamedWithItsNeighbour) {
  const Outcome outcome = bash("espalier tran gpt");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("unknown command tran; did you mean train"), std::string::npos) << outcome.errors;
  EXPECT_EQ(bash("espalier").exit_code, 2);
  EXPECT_EQ(bash("espalier help").exit_code, 0);
  EXPECT_EQ(bash("espalier --version").output.substr(0, 9), "espalier ");
}

TEST_F(Command, HelpGoesToStandardOutput) {
  const Outcome common = bash("espalier train gpt -h"), all = bash("espalier train gpt --help-all");
  EXPECT_EQ(common.exit_code, 0);
  EXPECT_LT(common.output.size(), all.output.size());
  EXPECT_NE(common.output.find("--num-layers"), std::string::npos);
  EXPECT_NE(bash("espalier train gpt --help=learning").output.find("--lr-warmup-fraction"), std::string::npos);
  EXPECT_EQ(bash("espalier help train gpt").output, common.output);
}

}  // namespace
}  // namespace espalier
