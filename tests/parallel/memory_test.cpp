// The planner's bytes of every stage beside the tensor allocator's peak on its ranks.
#include <gtest/gtest.h>

#include "base/format.h"
#include "dist/local_ranks.h"
#include "families/gpt/config.h"
#include "kernels/dispatch.h"
#include "plan/layout.h"
#include "plan/memory.h"
#include "tensor/cpu_allocator.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::test {
namespace {

// Nearly all of it in blocks that the allocator counts (256 KiB and more).
const char* const kRun =
    "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 256 --max-position-embeddings 256"
    " --micro-batch-size 2 --num-threads 1 --global-batch-size 8 --train-samples 16 --lr-decay-samples 16"
    " --lr-warmup-samples 4 --eval-iters 0 --log-level error";

struct Bytes {
  double planned = 0, found = 0;
};

// Of every rank.
std::vector<Bytes> bytes_of(const std::string& layout_text) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 600, 5);
  const plan::Layout layout = plan::parse_layout(layout_text);
  const Words words = tiny_run(folder / "data") + split_blanks(kRun) + plan::layout_flags(layout, 4);
  config::RunConfig config;
  config.num_ranks = layout.grid.num_ranks();
  OptionTable table("espalier train gpt", "");
  Problems problems;
  config::read_run(families::gpt_family(), words, config, table, problems);
  problems.raise();
  config::set_vocabulary(config, 5000);
  const plan::RunShape shape = config::run_shape(config);
  const plan::MemoryPlan plan = plan::plan_memory(shape, plan::make_partition(shape), plan::ProductKind::kDirect);

  const auto measured = dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
    tensor::install_cpu_allocator();
    tensor::reset_peak_cpu_memory();
    const int64_t before = tensor::cpu_memory().bytes_in_use;
    train(words, grid);
    return std::to_string(tensor::cpu_memory().peak_bytes_in_use - before);
  });
  std::vector<Bytes> bytes;
  for (int64_t rank = 0; rank < layout.grid.num_ranks(); ++rank) {
    const auto stage = static_cast<size_t>(spec::position_of(layout.grid, rank).pipeline);
    bytes.push_back({plan.stages.at(stage).peak(), std::stod(measured[static_cast<size_t>(rank)])});
    std::printf("%-14s rank %lld: planned %s, allocator %s (%+.1f%%)\n", layout_text.c_str(),
                static_cast<long long>(rank), format_bytes(bytes.back().planned).c_str(),
                format_bytes(bytes.back().found).c_str(), 100 * (bytes.back().planned / bytes.back().found - 1));
  }
  return bytes;
}

class ParallelMemory : public ::testing::TestWithParam<const char*> {};

TEST_P(ParallelMemory, PlanIsWithinFivePercentOfTheAllocatorsPeak) {
  for (const Bytes& rank : bytes_of(GetParam())) EXPECT_NEAR(rank.planned, rank.found, 0.05 * rank.found);
}

INSTANTIATE_TEST_SUITE_P(, ParallelMemory,
                         ::testing::Values("tp2", "tp2sp", "cp2", "pp2", "pp2vp2", "pp2zb", "dp2", "dp2zero1",
                                           "dp2zero2", "dp2zero3", "tp2pp2dp2zero1"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace espalier::test
