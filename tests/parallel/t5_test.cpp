// A T5 in every kind of layout: the training of one process, the same bits after a stop, and any checkpoint in any
// layout.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/format.h"
#include "base/log.h"
#include "config/parity_request.h"
#include "dist/local_ranks.h"
#include "families/t5/config.h"
#include "tests/e2e/run_fixture.h"
#include "train/parity.h"

namespace espalier::test {
namespace parallel_t5_test {

constexpr int64_t kSteps = 4;

struct T5Layout {
  std::string layout;
  std::string split_rank = "";  // of the pipeline; half of the stages are the encoder's without it
};

class ParallelT5 : public ::testing::Test {
 protected:
  ParallelT5() { write_sentence_files(folder_ / "data", 200, 11); }

  // A vocabulary of which the last tensor ranks get fewer rows; more layers of the encoder than of the decoder; samples
  // with padding in either sequence, and others without.
  Words run_flags() const {
    return tiny_t5_run(folder_ / "data") +
           split_blanks(
               "--num-layers 5 --decoder-num-layers 4 --hidden-size 32 --num-attention-heads 8 --encoder-seq-length 32"
               " --decoder-seq-length 16 --max-position-embeddings 32 --make-vocab-size-divisible-by 1"
               " --pad-vocab-size-to 427 --micro-batch-size 1 --global-batch-size 16 --train-samples 64"
               " --lr-decay-samples 64 --num-threads 1 --short-seq-prob 0.3");
  }

  Words flags_of(const T5Layout& layout) const {
    if (layout.split_rank.empty()) return run_flags();
    return run_flags() + Words{"--pipeline-model-parallel-split-rank", layout.split_rank};
  }

  train::ParityRun parity_run(const T5Layout& one, const Words& more) const {
    const config::ParityRequest request{.family = &families::t5_family(),
                                        .layouts = {},
                                        .num_steps = kSteps,
                                        .json = false,
                                        .arguments = flags_of(one) + more + Words{"--layouts", one.layout}};
    config::RunConfig config;
    OptionTable table("espalier parity t5", "");
    Problems problems;
    const plan::Layout layout = config::read_parity_layout(request, one.layout, config, table, problems);
    problems.raise();
    const auto texts = dist::run_ranks(layout.grid,
                                       [&](const dist::Grid& grid) {
                                         set_log_level(LogLevel::kQuiet);
                                         return train::to_text(train::run_for_parity(config, table, kSteps, grid));
                                       },
                                       {.shared_stages = config::shared_stages(config)});
    return train::parity_run_from_text(texts[0]);
  }

  void expect_same_in(const std::vector<T5Layout>& layouts, const Words& more) const {
    const train::ParityRun one = parity_run({"tp1pp1dp1"}, more);
    ASSERT_EQ(one.losses.size(), static_cast<size_t>(kSteps));
    for (const T5Layout& layout : layouts) {
      const std::string name = layout.layout + (layout.split_rank.empty() ? "" : ", split " + layout.split_rank);
      SCOPED_TRACE(name);
      const train::ParityComparison found = train::compare(parity_run(layout, more), one);
      std::printf("%-22s first loss %.1e, first norm %.1e, losses %.1e, weights' norm %.1e\n", name.c_str(),
                  found.first_loss, found.first_norm, found.largest_loss, found.params_norm);
      EXPECT_TRUE(found.weights_equal) << "the first weights differ";
      EXPECT_TRUE(found.samples_equal);
      EXPECT_EQ(found.num_replica_differences, 0u);
      EXPECT_LE(found.first_loss, 1e-6);
      EXPECT_LE(found.first_norm, 1e-5);
      EXPECT_LE(found.largest_loss, 1e-5);
      EXPECT_LE(found.params_norm, 1e-6);
    }
  }

  void run(const T5Layout& one, const std::string& save, const Words& more) const {
    const plan::Layout layout = plan::parse_layout(one.layout);
    const Words words = flags_of(one) + split_blanks("--save-interval 1000 --eval-iters 0 --log-level error") +
                        plan::layout_flags(layout, 9) + Words{"--save", folder_ / save} + more;
    dist::Grid shape;
    shape.shape = layout.grid;
    dist::run_ranks(layout.grid,
                    [&](const dist::Grid& grid) {
                      train(words, grid, families::t5_family());
                      return std::string();
                    },
                    {.shared_stages = config::shared_stages(ParsedRun(words, shape, families::t5_family()).config)});
  }

  TemporaryFolder folder_;
};

TEST_F(ParallelT5, TrainsTheSameModelAsOneProcess) {
  expect_same_in({{"tp2pp1dp1"},
                  {"tp2pp1dp1sp"},
                  {"tp4pp1dp2spzero2"},
                  {"tp1pp2dp1"},
                  {"tp1pp3dp1"},
                  {"tp1pp4dp1", "1"},
                  {"tp1pp4dp1", "2"},
                  {"tp1pp4dp1", "3"},
                  {"tp1pp2dp4zb"},
                  {"tp2pp4dp1spzb", "1"},
                  {"tp2pp2dp2spzero1"},
                  {"tp1pp1dp4zero1"},
                  {"tp1pp1dp4zero2"},
                  {"tp1pp1dp2zero3"},
                  {"tp2pp1dp2spzero3"}},
                 {});
}

TEST_F(ParallelT5, SoWithRecomputeAndWithMeansOfMicroBatches) {
  expect_same_in({{"tp2pp2dp1sp"}, {"tp1pp4dp1zb", "3"}, {"tp1pp1dp4zero3"}},
                 split_blanks("--checkpoint-activations --checkpoint-num-layers 2 --loss-average micro-batch"));
}

// Of a stage that begins in the encoder and ends in the decoder, the first of the decoder's layers too.
TEST_F(ParallelT5, SoWithRecomputeOfTheFirstLayersOfAStage) {
  expect_same_in({{"tp2pp1dp1sp"}, {"tp1pp2dp2"}, {"tp1pp1dp2zero3"}},
                 split_blanks("--recompute-granularity full --recompute-method block --recompute-num-layers 6"));
}

TEST_F(ParallelT5, SoWhereTensorRanksDivideWhatRecomputeKeeps) {
  expect_same_in({{"tp2pp1dp1"}, {"tp4pp2dp1"}},
                 split_blanks("--checkpoint-activations --distribute-checkpointed-activations"));
}

TEST_F(ParallelT5, SoWithAnOutputOfItsOwn) {
  expect_same_in({{"tp2pp2dp2spzero1"}, {"tp1pp4dp1", "1"}, {"tp1pp1dp2zero3"}},
                 {"--untie-embeddings-and-output-weights"});
}

TEST_F(ParallelT5, SoWithRmsNormsWithoutBiasesAndGated) {
  expect_same_in({{"tp2pp2dp2sp"}, {"tp1pp3dp1zb", "2"}, {"tp2pp1dp2zero3"}},
                 split_blanks("--normalization rmsnorm --disable-bias-linear --activation geglu"));
}

TEST_F(ParallelT5, StoppedAndResumedHasTheSameBits) {
  for (const T5Layout& layout : {T5Layout{"tp2pp3dp1sp", "1"}, T5Layout{"dp2zero3"}}) {
    run(layout, layout.layout + "straight", {"--bf16"});
    run(layout, layout.layout + "stopped", {"--bf16", "--exit-interval", "2"});
    run(layout, layout.layout + "stopped", {"--bf16", "--load", folder_ / (layout.layout + "stopped")});
    EXPECT_EQ(different_tensors(folder_ / (layout.layout + "straight/step_00000004"),
                                folder_ / (layout.layout + "stopped/step_00000004")),
              Words());
  }
}

// The border between encoder and decoder moves, stages come and go, tensor ranks too.
TEST_F(ParallelT5, GoesOnFromAnyLayoutInAnyOther) {
  run({"tp1"}, "one", {});
  run({"tp2pp3", "1"}, "many", {"--exit-interval", "1"});
  run({"pp4", "3"}, "many", {"--load", folder_ / "many", "--exit-interval", "2"});
  run({"tp4spdp2zero1"}, "many", {"--load", folder_ / "many", "--exit-interval", "3"});
  run({"pp3", "2"}, "many", {"--load", folder_ / "many"});
  const auto one = step_records(folder_ / "one"), many = step_records(folder_ / "many");
  ASSERT_EQ(one.size(), 4u);
  ASSERT_EQ(one.size(), many.size());
  for (size_t step = 0; step < one.size(); ++step)
    EXPECT_NEAR(many[step].at("lm_loss").get<double>() / one[step].at("lm_loss").get<double>(), 1, 1e-6)
        << "step " << step + 1;
}

}  // namespace parallel_t5_test
}  // namespace espalier::test
