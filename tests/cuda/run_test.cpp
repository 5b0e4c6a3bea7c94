// Whole training runs on the device under test.
#include <gtest/gtest.h>

#include "tests/cuda/device_under_test.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::cuda_test {
namespace run_test {

using test::operator+;
using test::step_records;
using test::TemporaryFolder;
using test::Words;

void train_on_device(const Words& words) {
  const UseDevice use;
  dist::Grid grid;
  grid.device = device_under_test();
  test::train(words, grid);
}

double loss_of(const nlohmann::json& record) { return record.at("lm_loss").get<double>(); }

// Losses of both runs, step by step; how far they may be apart.
void expect_equal_losses(const std::string& folder_a, const std::string& folder_b, double relative) {
  const auto a = step_records(folder_a), b = step_records(folder_b);
  ASSERT_EQ(a.size(), b.size());
  for (size_t step = 0; step < a.size(); ++step)
    EXPECT_NEAR(loss_of(a[step]), loss_of(b[step]), relative * loss_of(a[step])) << "step " << step + 1;
}

TEST(DeviceRun, TwentyStepsAgreeWithTheCpu) {
  const TemporaryFolder folder;
  test::write_token_files(folder / "data", 200, 5);
  const Words run = test::tiny_run(folder / "data") +
                    Words{"--bf16", "--global-batch-size", "4", "--save-interval", "1000", "--eval-iters", "0"};
  test::train(run + Words{"--save", folder / "cpu"});
  train_on_device(run + Words{"--save", folder / "device"});
  ASSERT_EQ(step_records(folder / "device").size(), 20u);
  expect_equal_losses(folder / "cpu", folder / "device", 0.01);
}

TEST(DeviceRun, StateGoesFromCpuToDeviceAndBack) {
  const TemporaryFolder folder;
  test::write_token_files(folder / "data", 200, 5);
  const Words run = test::tiny_run(folder / "data") + Words{"--save-interval",     "1000", "--eval-iters",        "0",
                                                            "--global-batch-size", "4",    "--train-samples",     "16",
                                                            "--lr-decay-samples",  "16",   "--lr-warmup-samples", "4"};
  test::train(run + Words{"--save", folder / "cpu"});
  const Words mixed = run + Words{"--save", folder / "mixed", "--load", folder / "mixed"};
  test::train(mixed + Words{"--exit-interval", "1"});
  train_on_device(mixed + Words{"--exit-interval", "3"});
  test::train(mixed);
  ASSERT_EQ(step_records(folder / "mixed").size(), 4u);
  expect_equal_losses(folder / "cpu", folder / "mixed", 1e-4);
}

TEST(DeviceRun, TwoRunsAreEqualToTheBit) {
  const TemporaryFolder folder;
  test::write_token_files(folder / "data", 200, 5);
  const Words run = test::tiny_run(folder / "data") +
                    Words{"--bf16", "--eval-iters",       "0",  "--global-batch-size", "4", "--train-samples",
                          "12",     "--lr-decay-samples", "12", "--lr-warmup-samples", "4", "--save-interval",
                          "1000"};
  train_on_device(run + Words{"--save", folder / "once"});
  train_on_device(run + Words{"--save", folder / "again"});
  EXPECT_EQ(step_records(folder / "once"), step_records(folder / "again"));
  EXPECT_EQ(test::different_tensors(folder / "once/step_00000003", folder / "again/step_00000003"), Words{});
}

}  // namespace run_test
}  // namespace espalier::cuda_test
