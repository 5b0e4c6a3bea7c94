// Runs whose data come in stages, in packed documents or in sequences that grow: stopped, resumed and in other layouts.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "dist/local_ranks.h"
#include "plan/layout.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::test {
namespace mixture_test {

class StagedRuns : public ::testing::TestWithParam<const char*> {
 protected:
  StagedRuns() {
    for (const auto& [name, documents, seed] : {std::tuple("web", 200, 3), {"code", 90, 4}, {"maths", 9, 5}})
      write_token_files(folder_ / name, documents, static_cast<unsigned>(seed));
  }

  // Ten steps of eight samples.
  Words words_of(const std::string& layout) const {
    return tiny_run(folder_ / "web") +
           split_blanks(
               "--num-layers 4 --num-attention-heads 4 --seq-length 32 --micro-batch-size 1"
               " --max-position-embeddings 32 --make-vocab-size-divisible-by 1 --pad-vocab-size-to"
               " 5001 --num-threads 1 --save-interval 1000 --eval-iters 0 --log-level error") +
           plan::layout_flags(plan::parse_layout(layout), 4);
  }
  Words mixed() const {
    return {"--data-stages", "3: 0.5 " + (folder_ / "web") + ", 0.5 " + (folder_ / "code"),
            "50 samples: " + (folder_ / "maths")};
  }
  std::string run(const std::string& layout, const std::string& save, const Words& more) const {
    const Words words = words_of(layout) + Words{"--save", folder_ / save} + more;
    return dist::run_ranks(plan::parse_layout(layout).grid,
                           [&](const dist::Grid& grid) {
                             try {
                               train(words, grid);
                               return std::string();
                             } catch (const UserError& error) {
                               return std::string(error.what());
                             }
                           })
        .front();
  }
  void expect_equal_runs(const std::string& a, const std::string& b) const {
    const auto one = step_records(folder_ / a), other = step_records(folder_ / b);
    ASSERT_EQ(one.size(), other.size());
    for (size_t step = 0; step < one.size(); ++step) {
      EXPECT_NEAR(double(other[step].at("lm_loss")) / double(one[step].at("lm_loss")), 1, 1e-6) << "step " << step + 1;
      for (const char* key : {"sample_hash", "consumed_tokens", "consumed_samples"})
        EXPECT_EQ(one[step].at(key), other[step].at(key)) << key << " of step " << step + 1;
    }
  }
  std::string last(const std::string& save) const { return folder_ / (save + "/step_00000010"); }

  TemporaryFolder folder_;
};

// What a run may read, in one run each.
Words data_of(const std::string& kind) {
  if (kind == "divided") return {"--seq-length-stages", "0: 8", "2: 16", "6: 32"};
  if (kind == "truncated")
    return {"--seq-length-stages-by", "truncating", "--seq-length-stages", "0: 8", "2: 16", "6: 32"};
  if (kind == "packed") return split_blanks("--packing best-fit --reset-attention-mask --reset-position-ids");
  return {};
}

TEST_P(StagedRuns, StoppedAndResumedEqualTheRunThatWasNotToTheBit) {
  const Words data = GetParam() == std::string("mixed") ? mixed() : data_of(GetParam());
  EXPECT_EQ(run("dp2", "straight", data), "");
  EXPECT_EQ(run("dp2", "stopped", data + Words{"--exit-interval", "5"}), "");
  EXPECT_EQ(run("dp2", "stopped", data + Words{"--load", folder_ / "stopped"}), "");
  EXPECT_EQ(different_tensors(last("straight"), last("stopped")), Words());
}

TEST_P(StagedRuns, AreTheSameInEveryLayout) {
  const Words data = GetParam() == std::string("mixed") ? mixed() : data_of(GetParam());
  run("tp1", "one", data);
  for (const char* layout : {"tp2sp", "pp2", "cp2"}) {
    SCOPED_TRACE(layout);
    EXPECT_EQ(run(layout, layout, data), "");
    expect_equal_runs("one", layout);
  }
  run("dp4", "many", data + Words{"--exit-interval", "4"});
  run("tp2", "many", data + Words{"--load", folder_ / "many", "--exit-interval", "7"});
  run("dp2", "many", data + Words{"--load", folder_ / "many"});
  expect_equal_runs("one", "many");
}

INSTANTIATE_TEST_SUITE_P(, StagedRuns, ::testing::Values("mixed", "divided", "truncated", "packed"),
                         [](const auto& info) { return std::string(info.param); });

using StagesOnResume = StagedRuns;

TEST_F(StagesOnResume, MayChangeWhereTheRunHasNotCome) {
  EXPECT_EQ(run("tp1", "plain", {"--exit-interval", "5"}), "");
  const Words more = {"--load", folder_ / "plain"};
  const std::string maths = folder_ / "maths", code = folder_ / "code";
  const std::string refused = run("tp1", "plain", more + Words{"--data-stages", "3: " + maths});
  EXPECT_NE(refused.find("stage 2: there was none, and now there is one from sample 24 on: 1 " + maths),
            std::string::npos)
      << refused;
  EXPECT_EQ(run("tp1", "plain", more + Words{"--data-stages", "5: 1 " + code, "--exit-interval", "7"}), "");
  EXPECT_EQ(run("tp1", "plain", more + Words{"--data-stages", "5: 1 " + code, "8: " + maths}), "");
  const auto records = step_records(folder_ / "plain");
  EXPECT_EQ(run("tp1", "at_once", {"--data-stages", "5: 1 " + code, "8: " + maths}), "");
  const auto at_once = step_records(folder_ / "at_once");
  ASSERT_EQ(records.size(), 10u);
  for (size_t step = 0; step < 10; ++step) EXPECT_EQ(records[step], at_once[step]) << step;
}

TEST_F(StagesOnResume, OfLengthsThatHaveBegunAreCompared) {
  EXPECT_EQ(run("tp1", "run", {"--exit-interval", "5", "--seq-length-stages", "0: 8", "4: 16"}), "");
  const Words more = {"--load", folder_ / "run"};
  const std::string refused = run("tp1", "run", more + Words{"--seq-length-stages", "0: 8", "3: 16"});
  EXPECT_NE(refused.find("the length of sequences was 8 from sample 0 on, 16 from sample 32 on and is 8 from sample 0 "
                         "on, 16 from sample 24 on"),
            std::string::npos)
      << refused;
  EXPECT_EQ(run("tp1", "run", more + Words{"--seq-length-stages", "0: 8", "4: 16", "5: 32"}), "");
}

// Stages of truncated samples begin after so many steps: of another batch size these may end within a batch.
TEST_F(StagesOnResume, ThatWouldGiveABatchTwoLengthsAreRefused) {
  const Words stages = {"--seq-length-stages-by", "truncating", "--seq-length-stages", "0: 8", "4: 32"};
  EXPECT_EQ(run("tp1", "run", stages + Words{"--exit-interval", "3"}), "");
  const Words more = stages + Words{"--load", folder_ / "run", "--override", "global_batch_size"};
  const std::string refused = run("tp1", "run", more + Words{"--global-batch-size", "16"});
  EXPECT_NE(refused.find("sequences are 32 tokens long from sample 64 on, in the middle of the batch of samples 56 to "
                         "71"),
            std::string::npos)
      << refused;
  EXPECT_EQ(run("tp1", "run", more + Words{"--global-batch-size", "12"}), "");
}

TEST_F(StagesOnResume, TruncatedSamplesCountTheTokensThatWereRead) {
  EXPECT_EQ(run("tp1", "run", data_of("truncated")), "");
  const auto records = step_records(folder_ / "run");
  const std::vector<int64_t> lengths = {8, 8, 16, 16, 16, 16, 32, 32, 32, 32};
  int64_t tokens = 0;
  for (size_t step = 0; step < 10; ++step) {
    EXPECT_EQ(records[step].at("curriculum_seqlen"), lengths[step]);
    EXPECT_EQ(records[step].at("consumed_tokens"), tokens += 8 * lengths[step]);
  }
}

}  // namespace mixture_test
}  // namespace espalier::test
