// --fp8-format in layouts: each rank rounds its part with scales of its own, so that layouts differ by rounding.
#include <gtest/gtest.h>

#include "families/gpt/config.h"
#include "tests/parallel/parity_runs.h"

namespace espalier::test {
namespace parallel_fp8_test {

class ParallelFp8 : public ::testing::Test {
 protected:
  ParallelFp8() { write_token_files(folder_ / "text", 300, 11); }

  void run(const std::string& layout_text, const std::string& save, const Words& more = {}) const {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words =
        tiny_run(folder_ / "text") +
        split_blanks(
            "--bf16 --fp8-format hybrid --num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32"
            " --max-position-embeddings 32 --make-vocab-size-divisible-by 1 --pad-vocab-size-to 5003"
            " --micro-batch-size 1 --global-batch-size 8 --train-samples 32 --lr-decay-samples 32 --num-threads 1"
            " --save-interval 1000 --eval-iters 0 --log-level error") +
        plan::layout_flags(layout, 4) + Words{"--save", folder_ / save} + more;
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    });
  }

  TemporaryFolder folder_;
};

TEST_F(ParallelFp8, LayoutsTrainTheSameModelButForRounding) {
  run("tp1", "one");
  const auto one = step_records(folder_ / "one");
  ASSERT_EQ(one.size(), 4u);
  for (const std::string layout : {"tp2", "tp2sp", "pp2dp2zb", "dp2zero3"}) {
    run(layout, layout);
    const auto other = step_records(folder_ / layout);
    ASSERT_EQ(other.size(), one.size()) << layout;
    for (size_t step = 0; step < one.size(); ++step) {
      const double loss = one[step].at("lm_loss");
      EXPECT_NEAR(other[step].at("lm_loss").get<double>(), loss, 0.01 * loss) << layout << ", step " << step + 1;
    }
  }
}

TEST_F(ParallelFp8, StoppedAndResumedHasTheSameBits) {
  for (const std::string layout : {"tp2sp", "pp2dp2zb", "dp2zero3"}) {
    run(layout, layout + "straight");
    run(layout, layout + "stopped", {"--exit-interval", "2"});
    run(layout, layout + "stopped", {"--load", folder_ / (layout + "stopped")});
    EXPECT_EQ(
        different_tensors(folder_ / (layout + "straight/step_00000004"), folder_ / (layout + "stopped/step_00000004")),
        Words());
  }
}

}  // namespace parallel_fp8_test
}  // namespace espalier::test
