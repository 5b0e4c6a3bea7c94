// --z-loss in every kind of layout: the training of one process, the same bits after a stop, any checkpoint in any
// layout, and a term apart from the loss.
#include <gtest/gtest.h>

#include <cmath>

#include "families/gpt/config.h"
#include "tests/parallel/parity_runs.h"

namespace espalier::test {
namespace parallel_z_loss_test {

class ParallelZLoss : public ::testing::Test {
 protected:
  ParallelZLoss() { write_token_files(folder_ / "text", 300, 11); }

  Words flags(const std::string& more) const {
    return tiny_run(folder_ / "text") +
           split_blanks(
               "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32"
               " --make-vocab-size-divisible-by 1 --pad-vocab-size-to 5003 --micro-batch-size 1"
               " --global-batch-size 8 --train-samples 32 --lr-decay-samples 32 --num-threads 1 ") +
           split_blanks(more);
  }
  void run(const std::string& layout_text, const std::string& save, const Words& flags, const Words& more = {}) const {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words = flags + split_blanks("--save-interval 1000 --eval-iters 0 --log-level error") +
                        plan::layout_flags(layout, 4) + Words{"--save", folder_ / save} + more;
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    });
  }

  TemporaryFolder folder_;
};

TEST_F(ParallelZLoss, TrainsTheModelOfOneProcess) {
  const Words words = flags("--z-loss 0.5");
  const train::ParityRun one = parity_run(families::gpt_family(), words, "tp1");
  ASSERT_EQ(one.losses.size(), static_cast<size_t>(kParitySteps));
  const train::ParityRun without = parity_run(families::gpt_family(), flags(""), "tp1");
  EXPECT_GT(one.losses[0], without.losses[0] + 0.5 * std::pow(std::log(5003.0), 2) * 0.9);
  EXPECT_GT(std::abs(one.grad_norms[0] / without.grad_norms[0] - 1), 1e-3);
  for (const char* layout :
       {"tp2", "tp4sp", "pp2", "pp2dp2zb", "dp2zero1", "dp4zero2", "dp2zero3", "cp2", "tp2cp2dp2spzero3"})
    expect_same_training(layout, parity_run(families::gpt_family(), words, layout), one);
}

TEST_F(ParallelZLoss, SoWithMeansOfMicroBatchesAndPrefixes) {
  for (const char* more : {"--z-loss 0.05 --loss-average micro-batch --eod-mask-loss",
                           "--z-loss 0.05 --objective prefix --loss-on-targets-only"}) {
    const train::ParityRun one = parity_run(families::gpt_family(), flags(more), "tp1");
    for (const char* layout : {"tp2pp2sp", "dp2zero2", "tp2cp2"})
      expect_same_training(layout, parity_run(families::gpt_family(), flags(more), layout), one);
  }
}

TEST_F(ParallelZLoss, IsReportedApartAndLeavesTheFirstLossAlone) {
  run("tp1", "without", flags("--exit-interval 1"));
  run("tp2", "with", flags("--exit-interval 1 --z-loss 0.05"));
  const auto without = step_records(folder_ / "without"), with = step_records(folder_ / "with");
  ASSERT_EQ(with.size(), 1u);
  EXPECT_NEAR(with[0].at("lm_loss").get<double>(), without[0].at("lm_loss").get<double>(), 1e-5);
  EXPECT_FALSE(without[0].contains("z_loss"));
  // Logits of a new model are small: log Z is near the logarithm of the vocabulary.
  EXPECT_NEAR(with[0].at("z_loss").get<double>() / (0.05 * std::pow(std::log(5003.0), 2)), 1, 0.02);
}

TEST_F(ParallelZLoss, StoppedAndResumedHasTheSameBits) {
  for (const std::string layout : {"tp2pp2", "dp2zero3"}) {
    const Words words = flags("--z-loss 0.05 --bf16");
    run(layout, layout + "straight", words);
    run(layout, layout + "stopped", words, {"--exit-interval", "2"});
    run(layout, layout + "stopped", words, {"--load", folder_ / (layout + "stopped")});
    EXPECT_EQ(
        different_tensors(folder_ / (layout + "straight/step_00000004"), folder_ / (layout + "stopped/step_00000004")),
        Words());
  }
}

TEST_F(ParallelZLoss, GoesOnFromAnyLayoutInAnyOther) {
  const Words words = flags("--z-loss 0.05");
  run("tp1", "one", words);
  run("tp2pp2", "many", words, {"--exit-interval", "1"});
  run("dp4zero1", "many", words, {"--load", folder_ / "many", "--exit-interval", "2"});
  run("tp2cp2sp", "many", words, {"--load", folder_ / "many"});
  const auto one = step_records(folder_ / "one"), many = step_records(folder_ / "many");
  ASSERT_EQ(one.size(), 4u);
  ASSERT_EQ(many.size(), 4u);
  for (size_t step = 0; step < one.size(); ++step)
    for (const char* loss : {"lm_loss", "z_loss"})
      EXPECT_NEAR(many[step].at(loss).get<double>() / one[step].at(loss).get<double>(), 1, 1e-6) << step << loss;
}

}  // namespace parallel_z_loss_test
}  // namespace espalier::test
