// Prefix language models and packed pairs in every kind of layout: the training of one process, the same bits after a
// stop, and any checkpoint in any layout.
#include <gtest/gtest.h>

#include "families/gpt/config.h"
#include "tests/parallel/parity_runs.h"

namespace espalier::test {
namespace parallel_objective_test {

class ParallelObjective : public ::testing::Test {
 protected:
  ParallelObjective() {
    write_token_files(folder_ / "text", 300, 11);
    write_pair_files(folder_ / "pairs", 600, 12);
  }

  Words run_flags(const std::string& data, const std::string& flags) const {
    return tiny_run(folder_ / data) +
           split_blanks(
               "--num-layers 8 --hidden-size 32 --num-attention-heads 8 --seq-length 32 --max-position-embeddings 32"
               " --make-vocab-size-divisible-by 1 --pad-vocab-size-to 5003 --micro-batch-size 1"
               " --global-batch-size 16 --train-samples 64 --lr-decay-samples 64 --num-threads 1 ") +
           split_blanks(flags);
  }
  Words prefix_run(const std::string& more = "") const {
    return run_flags("text", "--objective prefix --loss-on-targets-only " + more);
  }
  Words pairs_run(const std::string& more = "") const {
    return run_flags("pairs", "--objective multitask --prefixlm --norm-target-loss " + more);
  }

  static void expect_same_in(const std::vector<std::string>& layouts, const Words& flags) {
    const train::ParityRun one = parity_run(families::gpt_family(), flags, "tp1pp1dp1");
    ASSERT_EQ(one.losses.size(), static_cast<size_t>(kParitySteps));
    for (const std::string& layout : layouts)
      expect_same_training(layout, parity_run(families::gpt_family(), flags, layout), one);
  }

  void run(const std::string& layout_text, const std::string& save, const Words& flags, const Words& more = {}) const {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words = flags + split_blanks("--save-interval 1000 --eval-iters 0 --log-level error") +
                        plan::layout_flags(layout, 8) + Words{"--save", folder_ / save} + more;
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    });
  }

  TemporaryFolder folder_;
};

const std::vector<std::string> kAll = {"tp2pp1dp1",           "tp2pp1dp1sp",         "tp4pp2dp1vp2sp",
                                       "tp1pp4dp1",           "tp1pp2dp2vp2zero1",   "tp1pp2dp4zb",
                                       "tp1pp1dp4zero2",      "tp1pp1dp2zero3",      "tp1cp2pp1dp1",
                                       "tp2cp2pp1dp2spzero3", "tp2cp2pp2dp1zbzero1", "tp4pp1dp2spzero2"};
const std::vector<std::string> kSome = {"tp2pp2dp2spzero1", "tp2cp2pp1dp1", "tp1pp1dp2zero3"};

TEST_F(ParallelObjective, PrefixModelsAreThoseOfOneProcess) {
  expect_same_in({"tp4pp2dp1vp2sp", "tp1pp2dp4zb", "tp1pp1dp4zero2", "tp2cp2pp1dp2spzero3", "tp2cp2pp2dp1zbzero1"},
                 prefix_run());
}

TEST_F(ParallelObjective, SoAreThoseWithAPrefixForEachDocument) {
  expect_same_in(kSome, prefix_run("--reset-attention-mask --reset-position-ids --eod-mask-loss "
                                   "--reweight-loss-based-on-position-frequency --position-embedding-type absolute"));
}

TEST_F(ParallelObjective, ModelsOfPackedPairsAreThoseOfOneProcess) { expect_same_in(kAll, pairs_run()); }

TEST_F(ParallelObjective, SoAreCausalOnesWithMeansOfMicroBatchesAndRecompute) {
  for (const char* positions : {"rotary", "absolute"})
    expect_same_in(kSome,
                   run_flags("pairs", "--objective multitask --checkpoint-activations --position-embedding-type ") +
                       Words{positions, "--loss-average", "micro-batch"});
}

TEST_F(ParallelObjective, StoppedAndResumedHasTheSameBits) {
  for (const auto& [layout, pairs] : {std::pair("tp2pp2dp1vp2sp", true), {"dp2zero3", false}, {"cp2", true}}) {
    const std::string name = layout;
    const Words flags = pairs ? pairs_run("--bf16") : prefix_run("--bf16");
    run(layout, name + "straight", flags);
    run(layout, name + "stopped", flags, {"--exit-interval", "2"});
    run(layout, name + "stopped", flags, {"--load", folder_ / (name + "stopped")});
    EXPECT_EQ(
        different_tensors(folder_ / (name + "straight/step_00000004"), folder_ / (name + "stopped/step_00000004")),
        Words());
  }
}

TEST_F(ParallelObjective, GoesOnFromAnyLayoutInAnyOther) {
  for (const bool pairs : {false, true}) {
    const Words flags = pairs ? pairs_run() : prefix_run();
    const std::string first = concat("one", pairs), other = concat("many", pairs);
    run("tp1", first, flags);
    run("tp2pp2", other, flags, {"--exit-interval", "1"});
    run("dp4zero1", other, flags, {"--load", folder_ / other, "--exit-interval", "2"});
    run("tp2cp2sp", other, flags, {"--load", folder_ / other, "--exit-interval", "3"});
    run("tp4sp", other, flags, {"--load", folder_ / other});
    const auto one = step_records(folder_ / first), many = step_records(folder_ / other);
    ASSERT_EQ(one.size(), 4u);
    ASSERT_EQ(one.size(), many.size());
    for (size_t step = 0; step < one.size(); ++step)
      EXPECT_NEAR(many[step].at("lm_loss").get<double>() / one[step].at("lm_loss").get<double>(), 1, 1e-6)
          << "step " << step + 1;
  }
}

}  // namespace parallel_objective_test
}  // namespace espalier::test
