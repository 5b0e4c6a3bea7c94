// --canonical-reduction: whole runs whose weights, moments and records are equal to the bit whatever the number of
// replicas and the stage of ZeRO, also where it changes on the way.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "dist/local_ranks.h"
#include "families/bert/config.h"
#include "families/t5/config.h"
#include "plan/layout.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::test {
namespace {

class CanonicalRun : public ::testing::Test {
 protected:
  CanonicalRun() { write_token_files(folder_ / "data", 400, 11); }

  // Twelve micro-batches of a step.
  Words flags() const {
    return tiny_run(folder_ / "data") +
           split_blanks(
               "--canonical-reduction --num-layers 4 --num-attention-heads 4 --seq-length 32"
               " --max-position-embeddings 32 --make-vocab-size-divisible-by 1 --pad-vocab-size-to 5003"
               " --micro-batch-size 1 --global-batch-size 12"
               " --train-samples 72 --lr-decay-samples 72 --num-threads 1 --save-interval 1000 --eval-iters 0"
               " --log-level error");
  }
  void run(const std::string& layout_text, const std::string& save, const Words& more) const {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words = flags() + more + plan::layout_flags(layout, 4) + Words{"--save", folder_ / save};
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    });
  }
  std::string last_step(const std::string& save) const { return folder_ / (save + "/step_00000006"); }

  // Of each step, what must not depend on the layout.
  static void expect_equal_figures(const nlohmann::json& found, const nlohmann::json& wanted) {
    const auto value = [](const nlohmann::json& record, const char* figure) {
      return record.contains(figure) ? record.at(figure).dump() : "nothing";
    };
    for (const char* figure :
         {"lm_loss", "grad_norm", "num_zeros", "skipped", "loss_scale", "sample_hash", "learning_rate"})
      EXPECT_EQ(value(found, figure), value(wanted, figure)) << wanted.at("step") << " " << figure;
  }
  // The first layout's run, to the bit, in all the others.
  void expect_equal(const Words& layouts, const Words& more) const {
    for (const std::string& layout : layouts) run(layout, layout, more);
    for (const std::string& layout : layouts) {
      EXPECT_EQ(different_tensors(last_step(layouts[0]), last_step(layout)), Words()) << layout;
      const auto wanted = step_records(folder_ / layouts[0]), found = step_records(folder_ / layout);
      ASSERT_EQ(found.size(), 6u) << layout;
      SCOPED_TRACE(layout);
      for (size_t step = 0; step < wanted.size(); ++step) expect_equal_figures(found[step], wanted[step]);
    }
  }

  TemporaryFolder folder_;
};

const Words kReplicas = {"tp1", "dp2", "dp3", "dp4", "dp6"};

TEST_F(CanonicalRun, HasTheSameBitsWithAnyNumberOfReplicas) { expect_equal(kReplicas, {"--log-num-zeros-in-grad"}); }
TEST_F(CanonicalRun, HasTheSameBitsAtAnyStageOfZero) {
  expect_equal({"dp1", "dp2zero1", "dp3zero1", "dp4zero2", "dp2zero2", "dp3zero3", "dp6zero3"}, {"--bf16"});
}
TEST_F(CanonicalRun, HasTheSameBitsInFp16WhoseScaleIsFound) {
  expect_equal({"tp1", "dp2zero1", "dp3zero2", "dp4"}, split_blanks("--fp16 --initial-loss-scale 4294967296"));
}
TEST_F(CanonicalRun, HasTheSameBitsWhereTheOptimizerMeasuresParameters) {
  expect_equal({"tp1", "dp3zero1", "dp4zero2"}, split_blanks("--optimizer lamb --lr 1e-3"));
}
TEST_F(CanonicalRun, HasTheSameBitsWhereTheOptimizerTakesWholeMatrices) {
  expect_equal({"tp1", "dp3zero1", "dp4zero2", "dp2"}, split_blanks("--optimizer muon --lr 1e-3"));
}
TEST_F(CanonicalRun, HasTheSameBitsWhereTheOptimizerEstimatesCurvature) {
  expect_equal({"tp1", "dp3zero1", "dp4"}, split_blanks("--optimizer sophiag --sophiag-update-interval 2 --lr 1e-3"));
}
TEST_F(CanonicalRun, HasTheSameBitsWithMomentsInFewerBits) {
  expect_equal({"tp1", "dp3zero1", "dp4zero2"}, split_blanks("--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --bf16"));
}
// Micro-batches of very different numbers of targets.
TEST_F(CanonicalRun, HasTheSameBitsWithMaskedLossesAndMeansOfMicroBatches) {
  expect_equal({"tp1", "dp3", "dp4zero1"},
               split_blanks("--reset-attention-mask --reset-position-ids --eod-mask-loss --loss-average micro-batch"));
}
TEST_F(CanonicalRun, HasTheSameBitsWhileTheBatchGrows) {
  run("tp1", "one", split_blanks("--rampup-batch-size 6 6 24"));
  run("dp3", "three", split_blanks("--rampup-batch-size 6 6 24"));
  run("dp2zero2", "two", split_blanks("--rampup-batch-size 6 6 24"));
  const std::string last = "/step_00000008";
  EXPECT_EQ(different_tensors(folder_ / ("one" + last), folder_ / ("three" + last)), Words());
  EXPECT_EQ(different_tensors(folder_ / ("one" + last), folder_ / ("two" + last)), Words());
}
TEST_F(CanonicalRun, HasTheSameBitsWithEveryOtherAxis) { expect_equal({"tp2sp", "tp2dp2sp", "tp2dp3zero2sp"}, {}); }
TEST_F(CanonicalRun, HasTheSameBitsWithContexts) { expect_equal({"cp2", "cp2dp2", "cp2dp3zero2"}, {}); }
TEST_F(CanonicalRun, HasTheSameBitsWithStages) { expect_equal({"pp2", "pp2dp2", "pp2dp3zero1"}, {"--bf16"}); }

// Some updates are not made, for their norm or loss: all decide alike.
TEST_F(CanonicalRun, HasTheSameBitsWhereUpdatesAreSkipped) {
  expect_equal({"tp1", "dp3", "dp4zero1"}, split_blanks("--skip-step-sigma 0.1 --skip-step-window 2 --lr 0.1"));
  int64_t num_skipped = 0;
  for (const nlohmann::json& record : step_records(folder_ / "tp1"))
    num_skipped += record.contains("skipped") && record.at("skipped").get<bool>();
  EXPECT_GT(num_skipped, 0);
}

// Two losses, of which each has its own number of targets; two stacks of layers.
TEST(CanonicalFamilies, HaveTheSameBitsWithAnyNumberOfReplicas) {
  const TemporaryFolder folder;
  write_sentence_files(folder / "data", 200, 11);
  const std::string more =
      " --canonical-reduction --num-layers 4 --micro-batch-size 1 --global-batch-size 12 --train-samples 36"
      " --lr-decay-samples 36 --num-threads 1 --save-interval 1000 --eval-iters 0 --log-level error";
  const auto run = [&](const config::Family& family, const Words& words, const std::string& layout_text) {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const std::string save = folder / (family.name + layout_text);
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words + split_blanks(more) + plan::layout_flags(layout, 4) + Words{"--save", save}, grid, family);
      return std::string();
    });
    return save + "/step_00000003";
  };
  const std::string bert = run(families::bert_family(), tiny_bert_run(folder / "data"), "tp1");
  const std::string t5 = run(families::t5_family(), tiny_t5_run(folder / "data"), "tp1");
  for (const char* layout : {"dp3", "dp4zero1", "dp2zero2", "dp6zero3"}) {
    EXPECT_EQ(different_tensors(bert, run(families::bert_family(), tiny_bert_run(folder / "data"), layout)), Words());
    EXPECT_EQ(different_tensors(t5, run(families::t5_family(), tiny_t5_run(folder / "data"), layout)), Words());
  }
}

// Every part of the run in another layout.
TEST_F(CanonicalRun, HasTheSameBitsWhereTheReplicasChangeOnTheWay) {
  run("dp4", "straight", {"--bf16"});
  run("dp4zero1", "elastic", {"--bf16", "--exit-interval", "1"});
  run("dp3", "elastic", {"--bf16", "--load", folder_ / "elastic", "--exit-interval", "3"});
  run("tp1", "elastic", {"--bf16", "--load", folder_ / "elastic", "--exit-interval", "4"});
  run("dp6zero2", "elastic", {"--bf16", "--load", folder_ / "elastic"});
  EXPECT_EQ(different_tensors(last_step("straight"), last_step("elastic")), Words());
  const auto wanted = step_records(folder_ / "straight"), found = step_records(folder_ / "elastic");
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t step = 0; step < wanted.size(); ++step) expect_equal_figures(found[step], wanted[step]);
}

// That these runs are such in which the order of sums shows.
TEST_F(CanonicalRun, WithoutItHasOtherBits) {
  run("dp2", "two", {"--canonical-reduction=false"});
  run("dp4", "four", {"--canonical-reduction=false"});
  EXPECT_NE(different_tensors(last_step("two"), last_step("four")), Words());
}

}  // namespace
}  // namespace espalier::test
