// --logit-soft-cap and --attn-logit-soft-cap in every kind of layout: the training of one process, and the same bits
// after a stop.
#include <gtest/gtest.h>

#include <cmath>

#include "families/gpt/config.h"
#include "tests/parallel/parity_runs.h"

namespace espalier::test {
namespace parallel_soft_cap_test {

class ParallelSoftCap : public ::testing::Test {
 protected:
  ParallelSoftCap() { write_token_files(folder_ / "text", 300, 11); }

  // Logits and scores that are far beyond their caps without them.
  Words flags(const std::string& more) const {
    return tiny_run(folder_ / "text") +
           split_blanks(
               "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32"
               " --make-vocab-size-divisible-by 1 --pad-vocab-size-to 5003 --micro-batch-size 1 --init-method-std 0.3"
               " --global-batch-size 8 --train-samples 32 --lr-decay-samples 32 --num-threads 1 ") +
           split_blanks(more);
  }

  TemporaryFolder folder_;
};

TEST_F(ParallelSoftCap, TrainsTheModelOfOneProcess) {
  const Words words = flags("--logit-soft-cap 3 --attn-logit-soft-cap 2 --z-loss 0.01");
  const train::ParityRun one = parity_run(families::gpt_family(), words, "tp1");
  const train::ParityRun without = parity_run(families::gpt_family(), flags("--z-loss 0.01"), "tp1");
  ASSERT_EQ(one.losses.size(), static_cast<size_t>(kParitySteps));
  EXPECT_LE(one.losses[0], 2 * 3 + std::log(5003.0) + 0.01 * std::pow(3 + std::log(5003.0), 2));
  EXPECT_GT(without.losses[0], one.losses[0] + 0.1);
  for (const char* layout : {"tp2", "tp4sp", "pp2", "pp2dp2zb", "dp2zero1", "dp2zero3", "cp2", "tp2cp2dp2spzero3"})
    expect_same_training(layout, parity_run(families::gpt_family(), words, layout), one);
}

TEST_F(ParallelSoftCap, StoppedAndResumedHasTheSameBits) {
  const auto run = [&](const std::string& save, const Words& more) {
    const plan::Layout layout = plan::parse_layout("tp2pp2");
    const Words words =
        flags("--logit-soft-cap 30 --attn-logit-soft-cap 50 --bf16 --save-interval 1000 --eval-iters 0") +
        plan::layout_flags(layout, 4) + Words{"--save", folder_ / save} + more;
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    });
  };
  run("straight", {});
  run("stopped", {"--exit-interval", "2"});
  EXPECT_THROW(run("stopped", {"--load", folder_ / "stopped", "--logit-soft-cap", "20"}), UserError);
  run("stopped", {"--load", folder_ / "stopped"});
  EXPECT_EQ(different_tensors(folder_ / "straight/step_00000004", folder_ / "stopped/step_00000004"), Words());
}

}  // namespace parallel_soft_cap_test
}  // namespace espalier::test
