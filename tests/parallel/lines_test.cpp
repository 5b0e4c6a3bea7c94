// Pipelines whose messages go by lines of a device (dist::Line), with a stand-in that keeps their order as NCCL does.
#include <gtest/gtest.h>

#include "families/gpt/config.h"
#include "tests/parallel/parity_runs.h"
#include "tests/support/ordered_lines.h"

namespace espalier::test {
namespace {

dist::LocalRanksOptions with_lines() {
  dist::LocalRanksOptions options;
  options.place = [](int64_t, dist::GridOptions& grid) { grid.make_device_backend = make_ordered_line; };
  return options;
}

TEST(Lines, GiveTheBitsOfMessagesThroughHostMemory) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words flags =
      tiny_run(folder / "data") +
      Words{"--num-layers",        "4", "--train-samples", "32", "--eval-iters", "0", "--lr-decay-samples", "32",
            "--lr-warmup-samples", "8", "--num-threads",   "1"};  // OpenMP's threads do not outlast a fork
  for (const char* layout : {"pp2", "pp4", "pp2vp2", "pp2zb", "pp2dp2"}) {
    const train::ParityRun by_lines = parity_run(families::gpt_family(), flags, layout, with_lines());
    const train::ParityRun by_host = parity_run(families::gpt_family(), flags, layout);
    EXPECT_EQ(by_lines.losses, by_host.losses) << layout;
    EXPECT_EQ(by_lines.grad_norms, by_host.grad_norms) << layout;
    EXPECT_EQ(by_lines.params_norm, by_host.params_norm) << layout;
  }
}

// On one line for both ways this would never end: a receipt before a message, at both ends.
TEST(Lines, WaysDoNotWaitForEachOther) {
  dist::run_ranks(
      {.pipeline = 2},
      [](const dist::Grid& grid) {
        const at::Tensor sent = at::full({3}, static_cast<double>(grid.rank + 1)), received = at::empty({3});
        const int there = grid.rank == 0 ? dist::kForwardLine : dist::kBackwardLine, back = 1 - there;
        dist::Pending receipt = grid.pipeline.start_receive(received, 1 - grid.rank, /*tag=*/0, back);
        EXPECT_TRUE(received.isnan().all().item<bool>()) << "nothing may be there before somebody waits";
        dist::Pending sending = grid.pipeline.start_send(sent, 1 - grid.rank, /*tag=*/0, there);
        receipt.wait();
        sending.wait();
        EXPECT_TRUE(at::equal(received, at::full({3}, static_cast<double>(2 - grid.rank)))) << received;
        return ::testing::Test::HasFailure() ? throw std::runtime_error("failed") : std::string();
      },
      with_lines());
}

}  // namespace
}  // namespace espalier::test
