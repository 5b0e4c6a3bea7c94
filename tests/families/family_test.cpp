// A family that the product does not know trains in every layout, is planned, saved and resumed: by its own files and
// two lines of registry (here two calls).
#include <gtest/gtest.h>

#include "base/format.h"
#include "base/log.h"
#include "config/parity_request.h"
#include "dist/local_ranks.h"
#include "models/build.h"
#include "plan/memory.h"
#include "store/diff.h"
#include "store/run_folder.h"
#include "tests/e2e/run_files.h"
#include "tests/families/mlp.h"
#include "train/parity.h"
#include "train/run.h"

namespace espalier::test {
namespace {

class Families : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    models::add_runtime(mlp_runtime());
    folder_ = new TemporaryFolder;
    write_token_files(*folder_ / "data", 300, 11);
  }
  static void TearDownTestSuite() { delete folder_; }

  static Words flags() {
    return tiny_run_of(*folder_ / "data") +
           split_blanks(
               "--num-layers 4 --hidden-size 32 --seq-length 32 --micro-batch-size 1 --global-batch-size 8 "
               "--train-samples 48 --lr-decay-samples 48 --num-threads 1 --pad-vocab-size-to 5003 "
               "--make-vocab-size-divisible-by 1");
  }
  // tiny_run() without what only a GPT has.
  static Words tiny_run_of(const std::filesystem::path& data) {
    Words kept;
    const Words all = tiny_run(data);
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_of_gpt = all[i] == "--num-attention-heads" || all[i] == "--max-position-embeddings" ||
                             all[i] == "--position-embedding-type" || all[i] == "--attention-dropout";
      if (is_of_gpt)
        ++i;
      else if (all[i] != "--embed-layernorm")
        kept.push_back(all[i]);
    }
    return kept;
  }
  static train::ParityRun run(const std::string& layout_text) {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const config::ParityRequest request{
        .family = &mlp_family(), .layouts = {}, .num_steps = 4, .arguments = flags() + Words{"--layouts", layout_text}};
    config::RunConfig config;
    OptionTable table("espalier parity mlp", "");
    Problems problems;
    config::read_parity_layout(request, layout_text, config, table, problems);
    problems.raise();
    const auto texts = dist::run_ranks(layout.grid,
                                       [&](const dist::Grid& grid) {
                                         set_log_level(LogLevel::kQuiet);
                                         return train::to_text(train::run_for_parity(config, table, 4, grid));
                                       },
                                       {.shared_stages = config::shared_stages(config)});
    return train::parity_run_from_text(texts[0]);
  }

  static TemporaryFolder* folder_;
};
TemporaryFolder* Families::folder_ = nullptr;

TEST_F(Families, OneOfATestTrainsTheSameModelInEveryLayout) {
  const train::ParityRun one = run("tp1pp1dp1");
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const std::string layout : {"tp2pp1dp1sp", "tp1pp2dp1", "tp1pp2dp1vp2", "tp1pp2dp1zb", "tp2pp2dp1",
                                   "tp1pp1dp2zero3", "tp1pp1dp1cp2", "tp2pp1dp2zero2sp"}) {
    const train::ParityComparison difference = train::compare(run(layout), one);
    EXPECT_TRUE(difference.weights_equal && difference.samples_equal) << layout;
    EXPECT_TRUE(train::within(difference, train::parity_tolerance(plan::Precision::kFp32)))
        << layout << ": " << difference.first_loss << " " << difference.first_norm << " " << difference.largest_loss;
    EXPECT_EQ(difference.num_replica_differences, 0u) << layout;
  }
}

// Stopped and resumed, in another process count too, it has the bits of a run that went through.
TEST_F(Families, OneOfATestIsSavedAndResumed) {
  const auto train_to = [&](const std::string& name, const std::string& more) {
    const std::string save = *folder_ / name;
    const Words words = flags() + Words{"--save", save, "--load", save, "--save-interval", "3"} + split_blanks(more);
    dist::run_ranks({}, [&](const dist::Grid& grid) {
      set_log_level(LogLevel::kQuiet);
      config::RunConfig config;
      OptionTable table("espalier train mlp", "");
      Problems problems;
      config::read_run(mlp_family(), words, config, table, problems);
      problems.raise();
      train::run(config, table, "", grid);
      return std::string();
    });
    return std::filesystem::path(*folder_ / name);
  };
  const auto through = train_to("through", "");
  train_to("stopped", "--exit-interval 3");
  const auto stopped = train_to("stopped", "");
  const store::CheckpointDifference diff = store::diff_steps(through / "step_00000006", stopped / "step_00000006");
  EXPECT_EQ(diff.num_compared, 3 * (1 + 4 * 6 + 2)) << "weights and two moments";
  EXPECT_TRUE(diff.tensors.empty());
}

TEST_F(Families, OneOfATestIsKnownToPlans) {
  config::RunConfig config;
  OptionTable table("espalier plan mlp", "");
  Problems problems;
  config::read_run(mlp_family(), flags(), config, table, problems);
  problems.raise();
  config::set_vocabulary(config, 5000);
  const plan::RunShape shape = config::run_shape(config);
  // Words, and for each layer a norm and an MLP of 4h with biases; the last norm.
  EXPECT_EQ(shape.model.num_parameters(), 5003 * 32 + 4 * (2 * 32 + 8 * 32 * 32 + 5 * 32) + 2 * 32);
  EXPECT_GT(plan::plan_memory(shape, plan::make_partition(shape), plan::ProductKind::kDirect).largest().peak(), 0);
}

}  // namespace
}  // namespace espalier::test
