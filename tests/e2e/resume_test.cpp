// A run that was stopped and resumed is the run that was not, bit for bit.
#include <gtest/gtest.h>

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
  // Ten steps took the loss well below that of drawn weights; it goes on from there.
  const double drawn = base.front().at("lm_loss"), learnt = base.back().at("lm_loss");
  ASSERT_LT(learnt, drawn - 0.2);
  EXPECT_NEAR(tuned[0].at("lm_loss").get<double>(), learnt, 0.5 * (drawn - learnt));
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
