// Whole training runs on the device under test.
#include <gtest/gtest.h>

#include "store/run_folder.h"
#include "tests/cuda/device_under_test.h"
#include "tests/cuda/host_waits.h"
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

// Of four samples each. A CPU that stands in for a GPU takes eight.
int64_t num_steps() { return takes_all_cases() ? 20 : 8; }
Words of_steps(int64_t count) {
  return {"--global-batch-size", "4", "--save-interval", "1000", "--train-samples", std::to_string(4 * count)};
}

TEST(DeviceRun, ManyStepsAgreeWithTheCpu) {
  const TemporaryFolder folder;
  test::write_token_files(folder / "data", 200, 5);
  const Words run = test::tiny_run(folder / "data") + of_steps(num_steps()) + Words{"--bf16", "--eval-iters", "0"};
  test::train(run + Words{"--save", folder / "cpu"});
  train_on_device(run + Words{"--save", folder / "device"});
  ASSERT_EQ(step_records(folder / "device").size(), static_cast<size_t>(num_steps()));
  expect_equal_losses(folder / "cpu", folder / "device", 0.01);
}

TEST(DeviceRun, StepsOfFp8AgreeWithTheCpu) {
  const TemporaryFolder folder;
  test::write_token_files(folder / "data", 200, 5);
  const int64_t count = takes_all_cases() ? 10 : 5;
  const Words run = test::tiny_run(folder / "data") + of_steps(count) +
                    Words{"--bf16", "--fp8-format", "hybrid", "--eval-iters", "0", "--hidden-size", "48"};
  test::train(run + Words{"--save", folder / "cpu"});
  train_on_device(run + Words{"--save", folder / "device"});
  ASSERT_EQ(step_records(folder / "device").size(), static_cast<size_t>(count));
  expect_equal_losses(folder / "cpu", folder / "device", 0.01);
}

// Llama's kind of model, which cuDNN's attention computes.
const Words kByCudnn = {"--bf16", "--attention-backend",   "cudnn", "--position-embedding-type",
                        "rotary", "--hidden-size",         "32",    "--num-attention-heads",
                        "4",      "--num-key-value-heads", "2",     "--attention-dropout",
                        "0"};

TEST(DeviceRun, ManyStepsWithCudnnsAttentionAgreeWithTheCpu) {
  if (const char* why = why_no_cudnn_attention()) GTEST_SKIP() << why;
  const TemporaryFolder folder;
  test::write_token_files(folder / "data", 200, 5);
  const Words run = test::tiny_run(folder / "data") + kByCudnn + of_steps(num_steps()) + Words{"--eval-iters", "1"};
  test::train(run + Words{"--save", folder / "cpu"});
  train_on_device(run + Words{"--save", folder / "device"});
  ASSERT_EQ(step_records(folder / "device").size(), static_cast<size_t>(num_steps()));
  expect_equal_losses(folder / "cpu", folder / "device", 0.01);
  // They round in other places than ours, so that the option has reached the layers where bits differ.
  train_on_device(run + Words{"--attention-backend", "flash", "--save", folder / "ours"});
  expect_equal_losses(folder / "ours", folder / "device", 0.01);
  const std::string last = "/" + store::step_folder_name(num_steps());
  EXPECT_NE(test::different_tensors(folder / "ours" + last, folder / "device" + last), Words{});
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

void expect_equal_runs(const Words& flags) {
  const TemporaryFolder folder;
  test::write_token_files(folder / "data", 200, 5);
  const Words run = test::tiny_run(folder / "data") + flags +
                    Words{"--eval-iters",       "0",  "--global-batch-size", "4", "--train-samples", "12",
                          "--lr-decay-samples", "12", "--lr-warmup-samples", "4", "--save-interval", "1000"};
  train_on_device(run + Words{"--save", folder / "once"});
  train_on_device(run + Words{"--save", folder / "again"});
  EXPECT_EQ(step_records(folder / "once"), step_records(folder / "again"));
  EXPECT_EQ(test::different_tensors(folder / "once/step_00000003", folder / "again/step_00000003"), Words{});
}

TEST(DeviceRun, TwoRunsAreEqualToTheBit) { expect_equal_runs({"--bf16"}); }

TEST(DeviceRun, TwoRunsWithCudnnsAttentionAreEqualToTheBit) {
  if (const char* why = why_no_cudnn_attention()) GTEST_SKIP() << why;
  expect_equal_runs(kByCudnn);
}

constexpr int64_t kSteps = 2;
HostWaits::Counts waits_of_run(const Words& words) {
  const TemporaryFolder folder;
  test::write_token_files(folder / "data", 200, 5);
  const HostWaits waits;
  train_on_device(test::tiny_run(folder / "data") +
                  Words{"--bf16", "--eval-iters", "0", "--save-interval", "1000", "--save", folder / "run"} + words);
  EXPECT_EQ(step_records(folder / "run").size(), size_t{kSteps});
  return waits.counts();
}

const Words kOneMicroBatch = {"--micro-batch-size", "1", "--global-batch-size", "1", "--train-samples", "2",
                              "--lr-decay-samples", "2", "--lr-warmup-samples", "1"};
const Words kFourMicroBatches = {"--micro-batch-size", "1", "--global-batch-size", "4", "--train-samples", "8",
                                 "--lr-decay-samples", "8", "--lr-warmup-samples", "4"};

// The host reads the step's losses once, when everything was given to the device, and so runs ahead of it; the
// optimizer reads the norm.
TEST(DeviceRun, HostWaitsOfAStepDoNotGrowWithItsMicroBatches) {
  const HostWaits::Counts one = waits_of_run(kOneMicroBatch), four = waits_of_run(kFourMicroBatches);
  EXPECT_EQ(one.in_passes, kSteps);
  EXPECT_EQ(four.in_passes, kSteps);
  EXPECT_EQ(one.in_optimizer, kSteps) << "for the norm of all gradients at once";
  EXPECT_EQ(four.in_optimizer, kSteps);
}

TEST(DeviceRun, RoundingToFp8IsNotWaitedFor) {
  const HostWaits::Counts counts = waits_of_run(kFourMicroBatches + Words{"--fp8-format", "hybrid"});
  EXPECT_EQ(counts.in_passes, kSteps);
  EXPECT_EQ(counts.in_optimizer, kSteps);
}

TEST(DeviceRun, AveragesOfMicroBatchesAreNotWaitedFor) {
  const HostWaits::Counts counts = waits_of_run(kFourMicroBatches + Words{"--loss-average", "micro-batch"});
  EXPECT_EQ(counts.in_passes, kSteps);
}

TEST(DeviceRun, RecordsSayHowMuchMemoryAGpuHasGiven) {
  const TemporaryFolder folder;
  test::write_token_files(folder / "data", 200, 5);
  train_on_device(test::tiny_run(folder / "data") + kOneMicroBatch +
                  Words{"--eval-iters", "0", "--save-interval", "1000", "--save", folder / "run"});
  for (const nlohmann::json& record : step_records(folder / "run")) {
    const int64_t allocated = record.value("gpu_memory_allocated", int64_t{0});
    EXPECT_EQ(allocated > 0, device_under_test().is_cuda()) << record;
    EXPECT_GE(record.value("gpu_memory_peak", int64_t{0}), allocated) << record;
    EXPECT_GE(record.value("gpu_memory_reserved", int64_t{0}), allocated) << record;
  }
}

// Two layers have eight places of dropout in both passes; the sample numbers that they all name leave once. No other
// test has three samples in a micro-batch: none of these has been sent before.
TEST(DeviceRun, SampleNumbersLeaveOncePerMicroBatch) {
  const Words three = {"--micro-batch-size", "3",  "--global-batch-size", "6", "--train-samples", "12",
                       "--lr-decay-samples", "12", "--lr-warmup-samples", "6"};
  EXPECT_EQ(waits_of_run(three).copies_without_wait, kSteps * 2);
}

}  // namespace run_test
}  // namespace espalier::cuda_test
