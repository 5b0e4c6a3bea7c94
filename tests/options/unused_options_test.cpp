#include "config/unused_options.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/gpt_options.h"

namespace espalier::config {
namespace unused_options_test {

using Words = std::vector<std::string>;
using Case = std::pair<std::string, Words>;

Words unused(const std::string& flags) {
  const Parsed run(kGood + flags);
  EXPECT_EQ(run.messages(), Words{}) << flags;
  return unused_options(run.config, run.table);
}

void expect_unused(const std::vector<Case>& cases) {
  for (const auto& [flags, messages] : cases) EXPECT_EQ(unused(flags), messages) << flags;
}

TEST(UnusedOptions, OfRecomputeAreNamed) {
  const std::string reason =
      " (command line) has no effect: nothing is recomputed without --checkpoint-activations or "
      "--recompute-granularity full";
  expect_unused({
      {"--checkpoint-num-layers 2", {"--checkpoint-num-layers 2" + reason}},
      {"--recompute-num-layers 2 --recompute-method uniform",
       {"--recompute-num-layers 2" + reason, "--recompute-method uniform" + reason}},
      {"--partition-activations", {"--partition-activations" + reason}},
      {"--partition-activations=false", {}},
      {"--checkpoint-activations --checkpoint-num-layers 2", {}},
      {"--recompute-granularity full --partition-activations",
       {"--partition-activations (command line) has no effect: a single tensor rank keeps all of it"}},
      {"--recompute-granularity full --partition-activations --tensor-model-parallel-size 2", {}},
  });
}

// Ten steps of six samples.
TEST(UnusedOptions, StagesThatBeginAfterTheRunAreNamed) {
  const std::string reason = ", and the run ends at 60";
  expect_unused({
      {"--data-stages 9:data/x", {}},
      {"--data-stages 10:data/x",
       {"--data-stages 10:data/x (command line) has no effect: its first stage begins at sample 60" + reason}},
      {"--data-stages 11:data/x 12:data/y",
       {"--data-stages 11:data/x 12:data/y (command line) has no effect: its first stage begins at sample 66" +
        reason}},
      {"--data-stages 9:data/x 12:data/y", {}},
      {"--seq-length-stages 10:1",
       {"--seq-length-stages 10:1 (command line) has no effect: its first stage begins at sample 60" + reason}},
      {"--seq-length-stages 0:1 10:1", {}},
  });
}

TEST(UnusedOptions, OfTheLossScaleAreNamed) {
  const std::string reason = " (command line) has no effect: only --fp16 scales the loss";
  expect_unused({
      {"--bf16 --loss-scale 128", {"--loss-scale 128.0" + reason}},
      {"--initial-loss-scale 8 --min-loss-scale 2 --loss-scale-window 500 --hysteresis 3",
       {"--initial-loss-scale 8.0" + reason, "--min-loss-scale 2.0" + reason, "--loss-scale-window 500.0" + reason,
        "--hysteresis 3" + reason}},
      {"--fp16 --loss-scale 128 --hysteresis 3",
       {"--hysteresis 3 (command line) has no effect: the loss scale is constant, --loss-scale 128.0 (command "
        "line)"}},
      {"--fp16 --loss-scale 0 --hysteresis 3", {}},
  });
}

TEST(UnusedOptions, OfOtherOptimizersAreNamed) {
  expect_unused({
      {"--sgd-momentum 0.5", {"--sgd-momentum 0.5 (command line) has no effect: --optimizer adam does not read it"}},
      {"--optimizer sgd --sgd-momentum 0.5", {}},
      {"--optimizer lion --lion-beta1 0.9 --lion-beta2 0.99", {}},
      {"--optimizer lamb --adam-beta1 0.5 --lion-beta2 0.99",
       {"--lion-beta2 0.99 (command line) has no effect: --optimizer lamb does not read it"}},
      {"--optimizer adamwschedulefree --lr-decay-style constant --adam-beta1 0.5", {}},
      {"--optimizer sgd --adam-beta1 0.5 --adam-beta2 0.5 --adam-eps 1e-6",
       {"--adam-beta1 0.5 (command line) has no effect: --optimizer sgd does not read it",
        "--adam-beta2 0.5 (command line) has no effect: --optimizer sgd does not read it",
        "--adam-eps 1e-06 (command line) has no effect: --optimizer sgd does not read it"}},
  });
}

TEST(UnusedOptions, OfScheduleStartAndFoldersAreNamed) {
  const std::string constant = " (command line) has no effect: --lr-decay-style constant does not decay";
  expect_unused({
      {"--word-embedding-init-std 0.1",
       {"--word-embedding-init-std 0.1 (command line) has no effect: only --adjust-word-embedding-init reads it"}},
      {"--init-method-xavier-uniform --init-method-std 0.1",
       {"--init-method-std 0.1 (command line) has no effect: --init-method-xavier-uniform derives the bounds from the "
        "shapes"}},
      {"--lr-decay-style constant --min-lr 1e-5 --lr-decay-iters 9",
       {"--min-lr 1e-05" + constant, "--lr-decay-iters 9" + constant}},
      {"--lr-decay-style constant --lr-decay-iters 9 --lr-warmup-fraction 0.1", {}},
      {"--lr-decay-iters 9 --lr-decay-tokens 900",
       {"--lr-decay-iters 9 (command line) has no effect: --lr-decay-tokens wins"}},
      {"--lr-wsd-decay-iters 3 --timescale 4",
       {"--lr-wsd-decay-iters 3 (command line) has no effect: only --lr-decay-style WSD reads it",
        "--timescale 4.0 (command line) has no effect: only --lr-decay-style infinite-inv-square-root reads it"}},
      {"--lr_constant_plus_cooldown",
       {"--lr_constant_plus_cooldown (command line) has no effect: only --lr-decay-style constant reads it"}},
      {"--lr-decay-style constant --lr_constant_plus_cooldown --min-lr 1e-5", {}},
      {"--lr-warmup-init 1e-5", {"--lr-warmup-init 1e-05 (command line) has no effect: nothing warms up"}},
      {"--save-interval 5", {"--save-interval 5 (command line) has no effect: there is no --save"}},
      {"--override seed", {"--override seed (command line) has no effect: there is no --load"}},
      {"--log-timers-to-tensorboard",
       {"--log-timers-to-tensorboard (command line) has no effect: there is neither --tensorboard-dir nor --save"}},
      {"--log-timers-to-tensorboard --tensorboard-dir t", {}},
      {"--train-tokens 1981",
       {"--train-tokens 1981 (command line) has no effect: the run ends after 10 steps with 1980 tokens"}},
      {"--train-tokens 1980", {}},
      {"--profile-step-start 10", {"--profile-step-start 10 (command line) has no effect: the run has 10 steps"}},
  });
}

TEST(UnusedOptions, OfModelLayoutAndTokenizerAreNamed) {
  expect_unused({
      {"--swiglu --no-bias-gelu-fusion",
       {"--no-bias-gelu-fusion (command line) has no effect: the activation is swiglu"}},
      {"--openai-gelu",
       {"--openai-gelu (command line) has no effect: gelu has the tanh form unless --no-bias-gelu-fusion is given"}},
      {"--openai-gelu --no-bias-gelu-fusion", {}},
      {"--add-qkv-bias",
       {"--add-qkv-bias (command line) has no effect: without --disable-bias-linear all linear layers have a bias"}},
      {"--rope-scaling-beta-fast 16",
       {"--rope-scaling-beta-fast 16.0 (command line) has no effect: only --rope-scaling-type yarn reads it"}},
      {"--sequence-parallel",
       {"--sequence-parallel (command line) has no effect: one tensor rank has the whole sequence"}},
      {"--pp-partition-method uniform",
       {"--pp-partition-method uniform (command line) has no effect: one pipeline stage has all layers"}},
      {"--pp-partition-method list:1,1 --pipeline-model-parallel-size 2", {}},
      {"--tokenizer-type PretrainedFromHF --tokenizer-name-or-path t --merge-file m",
       {"--merge-file m (command line) has no effect: --tokenizer-type PretrainedFromHF does not read it"}},
      {"--vocab-file v --merge-file m", {}},
      {"--tokenizer-type HFTokenizer --tokenizer-model t --vocab-size 7",
       {"--vocab-size 7 (command line) has no effect: --tokenizer-type HFTokenizer does not read it"}},
  });
}

// config.toml of a run holds all options, also those that mean nothing there.
TEST(UnusedOptions, DefaultsInARecipeAreNoReasonForMessages) {
  const Parsed run(kGood + "--bf16");
  ASSERT_EQ(unused_options(run.config, run.table), Words{});
  Parsed again("");
  again.problems = Problems();
  again.table.parse_toml(run.table.to_toml(), "config.toml", again.problems);
  resolve(again.config, again.table, again.problems);
  EXPECT_EQ(unused_options(again.config, again.table), Words{});
}

TEST(UnusedOptions, RecipesOfTheProjectHaveNone) {
  int recipes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("recipes")) {
    if (entry.is_directory()) continue;  // machines
    ++recipes;
    const Parsed run("--data-path owt --recipe " + entry.path().string());
    EXPECT_EQ(run.messages(), Words{}) << entry.path();
    EXPECT_EQ(unused_options(run.config, run.table), Words{}) << entry.path();
  }
  EXPECT_GE(recipes, 8);
}

TEST(UnusedOptions, OtherValuesInARecipeAreNamed) {
  Parsed run("");
  run.problems = Problems();
  std::string recipe = Parsed(kGood).table.to_toml();
  const size_t at = recipe.find("hysteresis = 2");
  ASSERT_NE(at, std::string::npos);
  recipe.replace(at, 14, "hysteresis = 4");
  run.table.parse_toml(recipe, "mine.toml", run.problems);
  resolve(run.config, run.table, run.problems);
  ASSERT_EQ(run.messages(), Words{});
  const Words messages = unused_options(run.config, run.table);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].find("--hysteresis 4 (mine.toml:"), 0U) << messages[0];
}

}  // namespace unused_options_test
}  // namespace espalier::config
