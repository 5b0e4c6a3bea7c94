// Runs of prefix language models and on packed pairs, on one process: the bits of a run that was stopped, means that do
// not depend on the micro-batch, and the planner's bytes.
#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu_isa.h"
#include "base/format.h"
#include "plan/memory.h"
#include "tensor/cpu_allocator.h"
#include "tests/e2e/run_fixture.h"
#include "tests/support/long_version.h"

namespace espalier::test {
namespace objective_run_test {

struct ObjectiveCase {
  const char* name;
  const char* flags;
  bool loss_falls = true;  // where a step's loss is not divided by what is to be expected of many
};
void PrintTo(const ObjectiveCase& value, std::ostream* out) { *out << value.name; }

Words objective_run(const TemporaryFolder& folder, const std::string& flags) {
  const bool pairs = flags.find("multitask") != std::string::npos;
  if (pairs)
    write_pair_files(folder / "data", 300, 5);
  else
    write_token_files(folder / "data", 200, 5);
  return tiny_run(folder / "data") + Words{"--num-threads", "1"} + split_blanks(flags);
}

class ObjectiveRun : public ::testing::TestWithParam<ObjectiveCase> {};

// Ten steps straight, against the same ten steps with a stop after step 3, and with ESPALIER_TEST_ALL one after step 7.
TEST_P(ObjectiveRun, StoppedAndResumedEqualsStraightBitForBit) {
  const TemporaryFolder folder;
  const Words run = objective_run(folder, GetParam().flags) + Words{"--save-interval", "1000"};
  train(run + Words{"--save", folder / "straight"});
  for (const std::string& stop : in_suite_or_all(Words{"3", "100"}, Words{"3", "7", "100"}))
    train(run + Words{"--save", folder / "stopped", "--load", folder / "stopped", "--exit-interval", stop});
  const auto straight = step_records(folder / "straight"), stopped = step_records(folder / "stopped");
  ASSERT_EQ(straight.size(), 10u);
  EXPECT_EQ(stopped, straight);
  EXPECT_EQ(different_tensors(folder / "straight/step_00000010", folder / "stopped/step_00000010"), Words{});
  if (GetParam().loss_falls) {
    EXPECT_LT(straight.back().at("lm_loss").get<double>(), straight.front().at("lm_loss").get<double>());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ObjectiveRun,
    ::testing::Values(ObjectiveCase{"prefix", "--objective prefix"},
                      ObjectiveCase{"prefix_targets_bf16",
                                    "--objective prefix --loss-on-targets-only --bf16 "
                                    "--reweight-loss-based-on-position-frequency --dataloader-type cyclic",
                                    false},
                      ObjectiveCase{"prefix_documents",
                                    "--objective prefix --reset-attention-mask --reset-position-ids "
                                    "--position-embedding-type absolute --checkpoint-activations"},
                      ObjectiveCase{"pairs", "--objective multitask"},
                      ObjectiveCase{"pairs_whole_input_bf16",
                                    "--objective multitask --prefixlm --norm-target-loss --bf16"},
                      ObjectiveCase{"pairs_fp16",
                                    "--objective multitask --prefixlm --fp16 --initial-loss-scale 65536 "
                                    "--position-embedding-type rotary --eod-mask-loss"}),
    [](const auto& info) { return std::string(info.param.name); });

// Rows have different numbers of targets; each target, or each token of one, counts the same.
TEST(ObjectiveLosses, MicroBatchesOfAnySizeGiveTheSameMeansAndGradients) {
  for (const char* flags : {"--objective multitask", "--objective multitask --norm-target-loss --prefixlm",
                            "--objective prefix --loss-on-targets-only"}) {
    SCOPED_TRACE(flags);
    const TemporaryFolder folder;
    const Words run = objective_run(folder, flags) + Words{"--save-interval", "1000"};
    const auto records = [&](const char* micro_batch_size) {
      const std::string save = folder / concat("run", micro_batch_size);
      train(run + Words{"--micro-batch-size", micro_batch_size, "--save", save});
      return step_records(save);
    };
    const auto whole = records("8"), single = records("1");
    ASSERT_EQ(whole.size(), 10u);
    for (size_t step = 0; step < whole.size(); ++step)
      for (const char* key : {"lm_loss", "grad_norm"})
        EXPECT_NEAR(single[step].at(key).get<double>() / whole[step].at(key).get<double>(), 1, 1e-5)
            << key << " of step " << step + 1;
  }
}

// More rows are more epochs of the same pairs, after those that were.
TEST(ObjectiveLosses, ARunOnPairsIsMadeLonger) {
  const TemporaryFolder folder;
  const Words run =
      objective_run(folder, "--objective multitask") + Words{"--save-interval", "1000", "--lr-decay-samples", "160"};
  train(run + Words{"--train-samples", "160", "--save", folder / "long"});
  train(run + Words{"--train-samples", "80", "--save", folder / "short"});
  train(run + Words{"--train-samples", "160", "--save", folder / "short", "--load", folder / "short"});
  EXPECT_EQ(step_records(folder / "short"), step_records(folder / "long"));
  EXPECT_EQ(different_tensors(folder / "short/step_00000020", folder / "long/step_00000020"), Words{});
}

TEST(ObjectiveLosses, AnotherObjectiveNeedsOverrideOrFinetune) {
  const TemporaryFolder folder;
  const Words run = objective_run(folder, "--save-interval 1000");
  const Words prefix = run + Words{"--objective", "prefix", "--load", folder / "causal"};
  train(run + Words{"--save", folder / "causal", "--exit-interval", "3"});
  try {
    train(prefix);
    ADD_FAILURE() << "went on with another objective";
  } catch (const UserError& error) {
    EXPECT_NE(
        std::string(error.what()).find("--objective: the checkpoint has \"causal\", the command line \"prefix\"."),
        std::string::npos)
        << error.what();
  }
  train(prefix + Words{"--override", "objective", "--exit-interval", "4"});
  train(prefix + Words{"--finetune", "--save", folder / "prefix", "--exit-interval", "1"});
  EXPECT_EQ(step_records(folder / "prefix").at(0).at("consumed_samples"), 8);
}

const char* const kLargeObjective =
    " --num-layers 3 --hidden-size 256 --num-attention-heads 4 --seq-length 256 --max-position-embeddings 256"
    " --micro-batch-size 4 --num-threads 2 --global-batch-size 8 --train-samples 8 --lr-decay-samples 16"
    " --lr-warmup-samples 4 --eval-iters 0 --split 1";

TEST(ObjectiveMemory, PlanIsWithinFivePercentOfTheAllocatorsPeak) {
  tensor::install_cpu_allocator();
  for (const std::string flags :
       {"--objective prefix --reset-attention-mask", "--objective multitask --prefixlm --bf16"}) {
    const TemporaryFolder folder;
    const Words run = objective_run(folder, flags) + split_blanks(kLargeObjective);
    ParsedRun parsed(run);
    config::set_vocabulary(parsed.config, 5000);
    const plan::RunShape shape = config::run_shape(parsed.config);
    const double planned =
        plan::plan_memory(shape, plan::make_partition(shape), products_here(shape.precision)).largest().peak();
    tensor::reset_peak_cpu_memory();
    const double before = static_cast<double>(tensor::cpu_memory().bytes_in_use);
    train(run);
    const double measured = static_cast<double>(tensor::cpu_memory().peak_bytes_in_use) - before;
    std::printf("%-50s planned %s, allocator %s (%+.1f%%)\n", flags.c_str(), format_bytes(planned).c_str(),
                format_bytes(measured).c_str(), 100 * (planned / measured - 1));
    EXPECT_NEAR(planned, measured, 0.05 * measured) << flags;
  }
}

}  // namespace objective_run_test
}  // namespace espalier::test
