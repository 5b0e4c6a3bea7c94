// The options of Argonne's Megatron-DeepSpeed and of its recipes.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "base/format.h"
#include "spec/optimizer.h"
#include "tests/support/gpt_options.h"

namespace espalier::config {
namespace argonne_options_test {

using namespace test;

using Words = std::vector<std::string>;

// Each of its 348 options is used, accepted with a reason, or refused with what to use instead.
TEST(ArgonneOptions, TableKnowsAllOfThem) {
  const RunOptions options(families::gpt_family());
  const OptionTable& table = options.table;
  const Words names = split_blanks(read_file("tests/data/argonne-megatron-deepspeed-options.txt"));
  EXPECT_EQ(names.size(), 348U);
  for (const std::string& name : names) {
    const Option* option = table.find(name);
    ASSERT_NE(option, nullptr) << name;
    EXPECT_FALSE((option->effect() == OptionEffect::kUsed ? option->help() : option->effect_reason()).empty()) << name;
  }
}

// What upstream takes as flags is taken as flags here, and what takes a value takes one: else a launch line would be
// misread after it.
TEST(ArgonneOptions, FlagsOfItsRecipesTakeNoValue) {
  const Parsed run(kGood +
                   "--use-flash-attn-triton --no-pipeline-parallel --overlap-p2p-communication --repeated-dataloader "
                   "--shuffle-sample-in-corpus --log-optimizer-states-to-tensorboard --log-world-size-to-tensorboard "
                   "--ds_fused_adam --num-experts 1 --timing-log-level=1 --timing-log-option minmax "
                   "--use-checkpoint-opt_param-scheduler --no-gradient-accumulation-fusion --optimizer=adamw "
                   "--moe-expert-parallel-size 1 --transformer-impl local --trace-dir t --empty-unused-memory-level 1");
  EXPECT_EQ(run.problems.messages(), Words{});
  EXPECT_EQ(spec::optimizer_kind(run.config.optimizer).name(), "adam");
  EXPECT_TRUE(run.config.schedule.use_checkpoint_lr_scheduler);
}

using Case = std::pair<std::string, std::string>;

void expect_messages(const std::vector<Case>& cases) {
  for (const auto& [flags, message] : cases)
    EXPECT_EQ(Parsed(kGood + flags).problems.messages(), Words{message}) << flags;
}

// Intel's choices have no place here and say so by name.
TEST(ArgonneOptions, ChoicesForOtherDevicesAreRefusedByName) {
  expect_messages({
      {"--distributed-backend=hccl",
       "--distributed-backend hccl (command line) is not supported: HCCL is not built in; use gloo"},
      {"--optimizer ipex.fusedlamb",
       "--optimizer ipex.fusedlamb (command line) is not supported: LAMB is always fused; use --optimizer lamb"},
      {"--optimizer ds.fusedlamb",
       "--optimizer ds.fusedlamb (command line) is not supported: its bounds of the ratio of norms are not built in; "
       "use "
       "--optimizer lamb, which has none"},
      {"--optimizer dshampooadamw",
       "--optimizer dshampooadamw (command line) is not supported: no preconditioner is kept; use --optimizer muon, "
       "which makes one of each step's momentum"},
      {"--optimizer galoreadamw8bit",
       "--optimizer galoreadamw8bit (command line) is not supported: gradients are not projected; use --optimizer "
       "adam8bit, or --zero-stage 1 to divide the state of adam"},
      {"--optimizer adam8bit --exp-avg-dtype fp32",
       "--optimizer adam8bit keeps both moments in fp8, and --exp-avg-dtype fp32 (command line): use --optimizer adam "
       "with --exp-avg-dtype and --exp-avg-sq-dtype"},
      {"--optimizer adam8bit --exp-avg-dtype bf16",
       "--optimizer adam8bit keeps both moments in fp8, and --exp-avg-dtype bf16 (command line): use --optimizer adam "
       "with --exp-avg-dtype and --exp-avg-sq-dtype"},
      {"--optimizer adamwschedulefree",
       "--optimizer adamwschedulefree (command line) averages the weights instead of letting the learning rate decay; "
       "use --lr-decay-style constant"},
      {"--optimizer lion --lion-beta1 1",
       "--lion-beta1 1.0 (command line) never forgets; use a number below 1, such as 0.9 or 0.999"},
      {"--transformer-impl inference_optimized",
       "--transformer-impl inference_optimized (command line) is not supported: use `espalier generate`"},
      {"--no-pipeline-parallel --pipeline-model-parallel-size 2",
       "--no-pipeline-parallel and --pipeline-model-parallel-size 2 (command line) are mutually exclusive; leave one "
       "out"},
  });
}

TEST(StepsToSkip, RangesOfAllSpellingsAreMerged) {
  const auto skipped = [](const std::string& flags) { return Parsed(kGood + flags).config.training.skipped_steps; };
  using Ranges = std::vector<StepRange>;
  EXPECT_EQ(skipped(""), Ranges{});
  EXPECT_EQ(skipped("--skip-train-iteration-range 7-7 1_0-12 3-5"), (Ranges{{3, 5}, {7, 7}, {10, 12}}));
  EXPECT_EQ(skipped("--skip-train-iteration-range 3-5 4-9 10-11 2-2"), (Ranges{{2, 11}}));
  EXPECT_EQ(skipped("--train-range-to-skip 3 5 9 9"), (Ranges{{3, 5}, {9, 9}}));
  EXPECT_EQ(skipped("--train-iters-to-skip 0 6"), (Ranges{{1, 1}, {7, 7}}));  // upstream counts these from 0
}

TEST(StepsToSkip, BadOnesAreNamed) {
  const std::string ending = "' is not a range of steps FIRST-LAST, such as 31216-31250; the first step is 1";
  for (const std::string bad : {"7", "7-6", "0-3", "a-b", "5-"})
    expect_messages({{"--skip-train-iteration-range " + bad,
                      "--skip-train-iteration-range " + bad + " (command line): '" + bad + ending}});
  expect_messages({
      {"--train-range-to-skip 3 5 9",
       "--train-range-to-skip 3 5 9 (command line) has 3 numbers; give pairs FIRST LAST"},
      {"--train-range-to-skip 5 3",
       "--train-range-to-skip 5 3 (command line): 5 3 is not a range of steps; the first step is 1"},
      {"--train-iters-to-skip=-1", "--train-iters-to-skip -1 (command line): -1 is not a step; the first is 0 here"},
  });
}

TEST(OlderRecompute, NamesOfMegatronLmMeanFullRecompute) {
  using Kind = Recompute::Kind;
  const auto recompute = [](const std::string& flags) { return Parsed(kGood + flags).config.training.recompute; };
  EXPECT_EQ(recompute("--activations-checkpoint-method uniform"), (Recompute{Kind::kUniform, 1}));
  EXPECT_EQ(recompute("--activations-checkpoint-method block --activations-checkpoint-num-layers 2"),
            (Recompute{Kind::kBlock, 2}));
}

}  // namespace argonne_options_test
}  // namespace espalier::config
