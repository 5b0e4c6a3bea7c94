// A run that was stopped and resumed is the run that was not, bit for bit.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/format.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::test {
namespace resume_test {

struct Case {
  const char* name;
  Words flags;
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class Resume : public ::testing::TestWithParam<Case> {};

// Ten steps straight, against the same ten steps with stops behind steps 3 and 7.
TEST_P(Resume, StoppedAndResumedEqualsStraightBitForBit) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = tiny_run(folder / "data") + GetParam().flags + Words{"--save-interval", "1000"};
  train(run + Words{"--save", folder / "straight"});
  for (const char* stop : {"3", "7", "100"})
    train(run + Words{"--save", folder / "stopped", "--load", folder / "stopped", "--exit-interval", stop});

  const auto straight = step_records(folder / "straight"), stopped = step_records(folder / "stopped");
  ASSERT_GE(straight.size(), 10u);
  ASSERT_EQ(stopped.size(), straight.size());
  for (size_t step = 0; step < straight.size(); ++step) EXPECT_EQ(stopped[step], straight[step]) << "step " << step + 1;
  if (std::string(GetParam().name) == "fp16_with_overflows") {
    EXPECT_TRUE(straight.front().at("skipped")) << "the case is there for overflows";
    EXPECT_FALSE(straight.back().at("skipped"));
  }
  const std::string last =
      "/step_" + std::string(8 - std::to_string(straight.size()).size(), '0') + std::to_string(straight.size());
  EXPECT_EQ(different_tensors(folder / "straight" + last, folder / "stopped" + last), Words{});
}

INSTANTIATE_TEST_SUITE_P(
    Precisions, Resume,
    ::testing::Values(
        Case{"fp32", {}}, Case{"bf16", {"--bf16"}},
        Case{"fp16_with_overflows", {"--fp16", "--initial-loss-scale", "16777216", "--loss-scale-window", "3"}},
        Case{"batch_ramp",
             {"--rampup-batch-size", "2", "2", "24", "--train-samples", "60", "--lr-decay-samples", "60"}},
        // 200 documents hold about 190 samples of 33 tokens: the run crosses into a second epoch.
        Case{"epoch_end",
             {"--train-samples", "240", "--lr-decay-samples", "240", "--global-batch-size", "24", "--bf16"}},
        Case{"llama_bf16",
             split_blanks("--bf16 --position-embedding-type rotary --num-key-value-heads 1 --normalization rmsnorm "
                          "--qk-layernorm --swiglu --ffn-hidden-size 40 --disable-bias-linear --window-size 9 "
                          "--untie-embeddings-and-output-weights")},
        Case{"learned_positions_recompute",
             {"--position-embedding-type", "absolute", "--checkpoint-activations", "--reset-attention-mask",
              "--reset-position-ids", "--eod-mask-loss"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ResumeRecords, StepsBehindTheLoadedOneMoveAside) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = tiny_run(folder / "data") + Words{"--save", folder / "run", "--save-interval", "4"};
  train(run);
  ASSERT_EQ(step_records(folder / "run").size(), 10u);
  train(run + Words{"--load", folder / "run", "--ckpt-step", "4", "--exit-interval", "6"});
  const auto records = step_records(folder / "run");
  ASSERT_EQ(records.size(), 6u);
  EXPECT_EQ(records.back().at("step"), 6);
  EXPECT_TRUE(std::filesystem::exists(folder / "run/metrics.superseded.jsonl"));
}

TEST(Finetune, TakesTheWeightsAndStartsAtStepOne) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = tiny_run(folder / "data") + Words{"--save-interval", "100"};
  train(run + Words{"--save", folder / "base"});
  train(run + Words{"--load", folder / "base", "--finetune", "--save", folder / "tuned", "--seed", "8",
                    "--exit-interval", "2"});
  const auto base = step_records(folder / "base"), tuned = step_records(folder / "tuned");
  ASSERT_EQ(tuned.size(), 2u);
  EXPECT_EQ(tuned[0].at("step"), 1);
  EXPECT_EQ(tuned[0].at("consumed_samples"), 8);
  EXPECT_EQ(tuned[1].at("learning_rate"), base[1].at("learning_rate"));
  // Ten steps took the loss well below that of drawn weights; it goes on from there.
  const double drawn = base.front().at("lm_loss"), learnt = base.back().at("lm_loss");
  ASSERT_LT(learnt, drawn - 0.2);
  EXPECT_NEAR(tuned[0].at("lm_loss").get<double>(), learnt, 0.5 * (drawn - learnt));
}

// Moments and position go on, and the weights are those that were learnt: the next loss and rate are those of the run
// that stayed in its type, within what bf16 rounds.
TEST(OtherPrecision, GoesOnWithWeightsMomentsAndPosition) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = tiny_run(folder / "data") + Words{"--save-interval", "5"};
  train(run + Words{"--save", folder / "fp32"});
  const auto stayed = step_records(folder / "fp32");
  // A loss scale at which nothing overflows, so that fp16 skips no step.
  const Words overrides = {"--override", "bf16", "fp16", "initial_loss_scale"};
  for (const Words& type : {Words{"--bf16"}, Words{"--fp16", "--initial-loss-scale", "256"}}) {
    const std::string changed = folder / type[0];
    train(run + type + overrides + Words{"--load", folder / "fp32", "--ckpt-step", "5", "--save", changed});
    train(run + overrides +
          Words{"--load", changed, "--ckpt-step", "10", "--save", folder / "back", "--train-samples", "88",
                "--lr-decay-samples", "80"});
    const auto records = step_records(changed);
    ASSERT_EQ(records.size(), 5u);
    EXPECT_EQ(records[0].at("step"), 6);
    for (const char* same : {"sample_hash", "learning_rate"}) EXPECT_EQ(records[0].at(same), stayed[5].at(same));
    for (size_t step = 0; step < 5; ++step)
      EXPECT_NEAR(records[step].at("lm_loss").get<double>(), stayed[step + 5].at("lm_loss").get<double>(), 0.01);
    const auto back = step_records(folder / "back");
    ASSERT_EQ(back.size(), 1u);
    EXPECT_EQ(back[0].at("step"), 11);
    std::filesystem::remove_all(folder / "back");
  }
}

TEST(Finetune, CannotBeginAgainOverARunThatHasCheckpoints) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = tiny_run(folder / "data") + Words{"--save-interval", "2"};
  train(run + Words{"--save", folder / "base"});
  const Words tune = run + Words{"--load", folder / "base", "--finetune", "--save", folder / "tuned"};
  train(tune + Words{"--exit-interval", "1"});
  std::filesystem::remove_all(folder / "tuned/step_00000001");
  train(tune + Words{"--exit-interval", "4"});  // killed before its first checkpoint: it may begin again
  try {
    train(tune);
    FAIL() << "began again";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what())
                  .find(concat(
                      "--finetune would start again at iteration 0, and --save ", folder / "tuned",
                      " (command line) already holds checkpoints up to iteration 4. To go on with that run leave out "
                      "--finetune and give --load ",
                      folder / "tuned", "; to start anew give another --save")),
              std::string::npos)
        << error.what();
  }
}

TEST(NoLoadOptim, KeepsThePositionWithFreshMoments) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run =
      tiny_run(folder / "data") + Words{"--save-interval", "100", "--save", folder / "run", "--load", folder / "run"};
  train(run + Words{"--exit-interval", "5"});
  train(run + Words{"--no-load-optim"});
  const auto records = step_records(folder / "run");
  ASSERT_EQ(records.size(), 10u);
  EXPECT_EQ(records[5].at("step"), 6);
}

}  // namespace resume_test
}  // namespace espalier::test
