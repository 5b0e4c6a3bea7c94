// A bit of a gradient turns over before gradients are summed: all replicas then hold the same wrong weights, so that
// nothing in the run can see it. `espalier replay` does, in the step where it was.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/shell.h"
#include "tests/e2e/run_fixture.h"
#include "tests/support/flipped_bit.h"

namespace espalier::test {
namespace bit_flip_test {

TEST(BitFlip, InAGradientBeforeTheSumIsNamedByAReplayOfItsStep) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 300, 5);
  {
    // The fifth step: each has four micro-batches, of which the second is hit. A bit of the mantissa, by a 128th.
    const FlippedBit flip("layers.1.mlp.dense_h_to_4h", tensor::Pass::kBackward, 4 * 4 + 2, 16);
    train(tiny_run(folder / "data") + Words{"--save", folder / "run", "--save-interval", "4", "--num-threads", "1"});
    ASSERT_TRUE(flip.has_flipped());
  }
  const auto replay = [&](int step) {
    const std::string command = concat(ESPALIER_PROGRAM, " replay --load ", shell_word(folder / "run"), " --step ",
                                       step, " >", folder / "out", " 2>", folder / "log");
    const int status = std::system(command.c_str());
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(replay(4), 0) << read_file(folder / "out");
  EXPECT_EQ(replay(5), 1) << read_file(folder / "out");
  EXPECT_NE(read_file(folder / "out").find("step 5: grad_norm "), std::string::npos) << read_file(folder / "out");
  EXPECT_EQ(replay(8), 1) << read_file(folder / "out");
  EXPECT_NE(read_file(folder / "out").find("the first step that differs is 5"), std::string::npos)
      << read_file(folder / "out");
  // From the checkpoint after it, all is as it was made.
  EXPECT_EQ(replay(9), 0) << read_file(folder / "out");
}

}  // namespace bit_flip_test
}  // namespace espalier::test
