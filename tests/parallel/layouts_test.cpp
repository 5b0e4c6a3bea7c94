// The same training, whatever the layout: runs on forked ranks beside one process.
#include <gtest/gtest.h>

#include <cmath>

#include "base/format.h"
#include "dist/local_ranks.h"
#include "plan/layout.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::test {
namespace {

constexpr double kLossTolerance = 1e-6, kNormTolerance = 1e-5;  // relative; docs/numerics.md

struct Curve {
  std::vector<double> loss, norm;
  std::vector<std::string> sample_hash;
};

class Layouts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    write_token_files(*folder_ / "data", 200, 11);
  }
  static void TearDownTestSuite() { delete folder_; }

  // Flags of the run that every layout repeats: 4 layers, a vocabulary that pads differently at each TP.
  static Words run_flags() {
    return tiny_run(*folder_ / "data") + split_blanks("--num-layers 4 --hidden-size 48 --num-attention-heads 4"
                                                      " --seq-length 32 --max-position-embeddings 32"
                                                      " --make-vocab-size-divisible-by 8 --pad-vocab-size-to 5000");
  }

  static Curve run(const std::string& layout_text) {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const std::string save = *folder_ / layout_text;
    const Words words = run_flags() + plan::layout_flags(layout, 4) + Words{"--save", save, "--save-interval", "1000", "--log-level", "warning", "--num-threads", "1"};
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    });
    Curve curve;
    for (const nlohmann::json& record : step_records(save)) {
      if (!record.contains("lm_loss")) continue;
      curve.loss.push_back(record.at("lm_loss"));
      curve.norm.push_back(record.at("grad_norm"));
      curve.sample_hash.push_back(record.at("sample_hash").dump());
    }
    return curve;
  }

  static TemporaryFolder* folder_;
};
TemporaryFolder* Layouts::folder_ = nullptr;

TEST_F(Layouts, TrainAsOneProcessDoes) {
  const Curve one = run("tp1pp1dp1");
  ASSERT_EQ(one.loss.size(), 10u);
  for (const std::string layout : {"dp2", "tp2", "pp2", "tp2pp2dp2", "tp2sp", "cp2", "pp2vp2", "pp2zb", "tp2cp2sp", "dp2zero1", "dp2zero2", "tp2dp2zero1"}) {
    SCOPED_TRACE(layout);
    const Curve curve = run(layout);
    ASSERT_EQ(curve.loss.size(), one.loss.size());
    EXPECT_EQ(curve.sample_hash, one.sample_hash);
    EXPECT_NEAR(curve.loss[0] / one.loss[0], 1, kLossTolerance);
    EXPECT_NEAR(curve.norm[0] / one.norm[0], 1, kNormTolerance);
    double largest = 0;
    for (size_t step = 0; step < one.loss.size(); ++step)
      largest = std::max(largest, std::abs(curve.loss[step] / one.loss[step] - 1));
    std::printf("%-12s loss %.2e norm %.2e curve %.2e\n", layout.c_str(), std::abs(curve.loss[0] / one.loss[0] - 1),
                std::abs(curve.norm[0] / one.norm[0] - 1), largest);
    EXPECT_LE(largest, 1e-4);
  }
}

}  // namespace
}  // namespace espalier::test
