// Stopped and resumed runs of several ranks: the same layout to the bit, another layout within rounding.
#include <gtest/gtest.h>

#include <cmath>

#include "base/format.h"
#include "dist/local_ranks.h"
#include "kernels/dispatch.h"
#include "plan/layout.h"
#include "store/manifest.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::test {
namespace {

class ParallelResume : public ::testing::TestWithParam<const char*> {
 protected:
  ParallelResume() { write_token_files(folder_ / "data", 200, 3); }

  void run(const std::string& layout_text, const std::string& save, const Words& more,
           const dist::LocalRanksOptions& options = {}) const {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words = tiny_run(folder_ / "data") +
                        split_blanks(
                            "--num-layers 4 --num-attention-heads 4 --seq-length 32 --micro-batch-size 1"
                            " --max-position-embeddings 32 --make-vocab-size-divisible-by 1 --pad-vocab-size-to"
                            " 5001 --num-threads 1 --save-interval 1000 --eval-iters 0 --log-level error") +
                        plan::layout_flags(layout, 4) + Words{"--save", folder_ / save} + more;
    const auto rank = [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    };
    dist::run_ranks(layout.grid, rank, options);
  }
  std::string step(const std::string& save, int number) const {
    return folder_ / (save + format_printf("/step_%08d", number));
  }

  TemporaryFolder folder_;
};

TEST_P(ParallelResume, InTheSameLayoutHasTheSameBits) {
  run(GetParam(), "straight", {"--bf16"});
  run(GetParam(), "stopped", {"--bf16", "--exit-interval", "5"});
  run(GetParam(), "stopped", {"--bf16", "--load", folder_ / "stopped"});
  EXPECT_EQ(different_tensors(step("straight", 10), step("stopped", 10)), Words());
}

INSTANTIATE_TEST_SUITE_P(, ParallelResume,
                         ::testing::Values("tp2dp2zero1", "tp2pp2sp", "pp2vp2dp2", "dp4zero2", "dp2zero3", "pp4zb"),
                         [](const auto& info) { return std::string(info.param); });

using Transport = ParallelResume;

// Each adds in an order of its own: what was in force stands in the checkpoint.
TEST_F(Transport, AndInstructionSetAreInTheCheckpoint) {
  dist::LocalRanksOptions gloo;
  gloo.shared_memory = false;
  run("dp2", "run", {"--exit-interval", "2"});
  run("dp2", "run", {"--load", folder_ / "run", "--exit-interval", "4"}, gloo);
  run("tp1", "run", {"--load", folder_ / "run", "--exit-interval", "6"});
  const auto state = [&](int number) { return store::read_manifest(step("run", number)).state; };
  EXPECT_EQ(state(2).transport, "shared memory");
  EXPECT_EQ(state(4).transport, "Gloo");
  EXPECT_EQ(state(6).transport, "none");
  const std::string isa = kernels::cpu_isa_name(kernels::cpu_isa());
  EXPECT_EQ(state(2).instruction_set.find(isa + "; libtorch "), 0u) << state(2).instruction_set;
}

using AnotherLayout = ParallelResume;

TEST_F(AnotherLayout, GoesOnAsOneProcessWould) {
  run("tp1", "one", {});
  run("tp2pp2", "many", {"--exit-interval", "4"});
  run("dp4zero1", "many", {"--load", folder_ / "many", "--exit-interval", "8"});
  run("tp4sp", "many", {"--load", folder_ / "many"});
  const auto one = step_records(folder_ / "one"), many = step_records(folder_ / "many");
  ASSERT_EQ(one.size(), many.size());
  for (size_t step = 0; step < one.size(); ++step) {
    const double wanted = one[step].at("lm_loss"), found = many[step].at("lm_loss");
    EXPECT_NEAR(found / wanted, 1, 1e-6) << "step " << step + 1;
    EXPECT_EQ(one[step].at("sample_hash"), many[step].at("sample_hash"));
  }
}

}  // namespace
}  // namespace espalier::test
