// A BERT in every kind of layout: the training of one process, the same bits after a stop, and any checkpoint in any
// layout.
#include <gtest/gtest.h>

#include "families/bert/config.h"
#include "tests/parallel/parity_runs.h"

namespace espalier::test {
namespace parallel_bert_test {

class ParallelBert : public ::testing::Test {
 protected:
  ParallelBert() { write_sentence_files(folder_ / "data", 200, 11); }

  // A vocabulary of which the last tensor ranks get fewer rows; samples with padding, and others without.
  Words run_flags() const {
    return tiny_bert_run(folder_ / "data") +
           split_blanks(
               "--num-layers 8 --hidden-size 32 --num-attention-heads 8 --seq-length 32 --max-position-embeddings 32"
               " --make-vocab-size-divisible-by 1 --pad-vocab-size-to 331 --micro-batch-size 1 --global-batch-size 16"
               " --train-samples 64 --lr-decay-samples 64 --num-threads 1 --short-seq-prob 0.3");
  }

  void expect_same_in(const std::vector<std::string>& layouts, const Words& more) const {
    const auto run_in = [&](const std::string& layout) {
      return parity_run(families::bert_family(), run_flags() + more, layout);
    };
    const train::ParityRun one = run_in("tp1pp1dp1");
    ASSERT_EQ(one.losses.size(), static_cast<size_t>(kParitySteps));
    for (const std::string& layout : layouts) expect_same_training(layout, run_in(layout), one);
  }

  void run(const std::string& layout_text, const std::string& save, const Words& more) const {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words = run_flags() + split_blanks("--save-interval 1000 --eval-iters 0 --log-level error") +
                        plan::layout_flags(layout, 8) + Words{"--save", folder_ / save} + more;
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid, families::bert_family());
      return std::string();
    });
  }

  TemporaryFolder folder_;
};

TEST_F(ParallelBert, TrainsTheSameModelAsOneProcess) {
  expect_same_in(
      {"tp2pp1dp1", "tp2pp1dp1sp", "tp4pp2dp1vp2sp", "tp1pp4dp1", "tp1pp2dp2vp2zero1", "tp1pp2dp4zb", "tp1pp1dp4zero2",
       "tp1pp1dp2zero3", "tp1cp2pp1dp1", "tp2cp2pp1dp2spzero3", "tp2cp2pp2dp1zbzero1", "tp4pp1dp2spzero2"},
      {});
}

TEST_F(ParallelBert, SoWithRecomputeAndWithMeansOfMicroBatches) {
  expect_same_in({"tp2pp2dp1vp2sp", "tp1pp2dp2", "tp1pp1dp4zero3"},
                 split_blanks("--checkpoint-activations --checkpoint-num-layers 2 --loss-average micro-batch"));
}

TEST_F(ParallelBert, SoWithoutBinaryHead) {
  expect_same_in({"tp2pp2dp2spzero1", "tp2cp2pp1dp1", "tp1pp1dp2zero3"}, {"--bert-no-binary-head"});
  expect_same_in({"tp2cp2pp2dp1sp"}, {"--bert-no-binary-head", "--bert-num-tokentypes", "2"});
}

TEST_F(ParallelBert, StoppedAndResumedHasTheSameBits) {
  for (const char* layout : {"tp2pp2dp1vp2sp", "dp2zero3"}) {
    const std::string name = layout;
    run(layout, name + "straight", {"--bf16"});
    run(layout, name + "stopped", {"--bf16", "--exit-interval", "2"});
    run(layout, name + "stopped", {"--bf16", "--load", folder_ / (name + "stopped")});
    EXPECT_EQ(
        different_tensors(folder_ / (name + "straight/step_00000004"), folder_ / (name + "stopped/step_00000004")),
        Words());
  }
}

TEST_F(ParallelBert, GoesOnFromAnyLayoutInAnyOther) {
  run("tp1", "one", {});
  run("tp2pp2", "many", {"--exit-interval", "1"});
  run("dp4zero1", "many", {"--load", folder_ / "many", "--exit-interval", "2"});
  run("tp2cp2sp", "many", {"--load", folder_ / "many", "--exit-interval", "3"});
  run("tp4sp", "many", {"--load", folder_ / "many"});
  const auto one = step_records(folder_ / "one"), many = step_records(folder_ / "many");
  ASSERT_EQ(one.size(), 4u);
  ASSERT_EQ(one.size(), many.size());
  for (size_t step = 0; step < one.size(); ++step)
    for (const char* loss : {"lm_loss", "sop_loss"})
      EXPECT_NEAR(many[step].at(loss).get<double>() / one[step].at(loss).get<double>(), 1, 1e-6)
          << loss << " of step " << step + 1;
}

}  // namespace parallel_bert_test
}  // namespace espalier::test
