// The time of a step from its parts: work counted by hand, messages and bubbles by closed forms.
#include "plan/time/run_time.h"

#include <gtest/gtest.h>

#include "plan/time/node_change.h"
#include "plan/time/work.h"
#include "tests/support/gpt_options.h"

namespace espalier::plan {
namespace {

constexpr double kNever = 1e30;

// One that does nothing but multiply, 1,000 multiply-adds a second.
Machine multiplier() {
  Machine machine;
  machine.peak_flops = machine.peak_flops_fp32 = 2000;
  machine.matrix_share = machine.attention_share = 1;
  machine.memory_bandwidth = machine.link_bandwidth = machine.network_bandwidth = kNever;
  machine.memory_bytes = machine.device_watts = machine.node_watts = 1000;
  return machine;
}

RunShape small_run(const std::string& flags, int64_t num_ranks) {
  return test::resolved_shape(
      "--num-layers 8 --hidden-size 48 --num-attention-heads 4 --seq-length 33 --max-position-embeddings 33 --lr 1e-3 "
      "--train-samples 240 --micro-batch-size 3 --global-batch-size 24 --bf16 --pad-vocab-size-to 128 "
      "--position-embedding-type alibi --attention-dropout 0 --hidden-dropout 0 " +
          flags,
      num_ranks);
}

// Elements moved forward and back in a layer of Megatron's kernels, counted from the list of its kernels: two norms,
// two residual additions, one activation, what puts heads together, and seven passes over scores on the way forward.
TEST(Work, OfALayerIsThatOfItsKernels) {
  const RunShape run = small_run("--tensor-model-parallel-size 2", 2);
  const Program program{.fused_attention = false};
  const DepthWork work = depth_work(run, 3, program);
  const double b = 3, s = 33, h = 48, t = 2, a = 4, f = 4 * h, T = b * s, S = b * a / t * s * s;
  EXPECT_DOUBLE_EQ(work.forward.matrix_flops, 2 * T * 12 * h * h / t);
  EXPECT_DOUBLE_EQ(work.backward.matrix_flops, 2 * work.forward.matrix_flops);
  EXPECT_DOUBLE_EQ(work.weight_flops, work.forward.matrix_flops);
  EXPECT_DOUBLE_EQ(work.forward.score_flops, 4 * b * s * s * h / t);
  EXPECT_DOUBLE_EQ(work.forward.score_bytes, 2 * 2 * S);
  EXPECT_DOUBLE_EQ(work.forward.moved_bytes,
                   2 * (2 * 2 * T * h + 2 * 3 * T * h + 2 * T * f / t + 2 * T * h / t + 2 * S));
  EXPECT_DOUBLE_EQ(work.backward.moved_bytes,
                   2 * (2 * 8 * T * h + 2 * 1 * T * h + 4 * T * f / t + 11 * T * h / t + 3 * S));
  EXPECT_EQ(work.forward.attention_flops, 0);

  // Fused: pairs that are seen, and no scores in memory.
  const DepthWork fused = depth_work(run, 3, Program{});
  EXPECT_NEAR(fused.forward.attention_flops, 4 * b * (s * (s + 1) / 2) * h / t, 1e-6);
  EXPECT_NEAR(fused.backward.attention_flops, 2.5 * fused.forward.attention_flops, 1e-6);
  EXPECT_EQ(fused.forward.score_bytes, 0);
  EXPECT_DOUBLE_EQ(fused.forward.matrix_flops, work.forward.matrix_flops);
}

TEST(Work, DropoutAndSequenceParallelismChangeWhatIsMoved) {
  const double b = 3, s = 32, h = 48, t = 2, T = b * s;
  const std::string flags = "--seq-length 32 --max-position-embeddings 32 --tensor-model-parallel-size 2 ";
  const auto moved = [&](const std::string& more) {
    return depth_work(small_run(flags + more, 2), 3, Program{}).forward.moved_bytes;
  };
  // A byte of mask for each element of two residual additions.
  EXPECT_DOUBLE_EQ(moved("--hidden-dropout 0.1") - moved(""), 2 * T * h);
  // Norms and residual additions work on a half of the positions.
  EXPECT_DOUBLE_EQ(moved("") - moved("--sequence-parallel"), 2 * (2 * 2 + 2 * 3) * T * h / t);
}

// With nothing but products, equal stages and a head that costs nearly nothing a step is that of the closed form.
TEST(StepTime, IsTheFlopsAndTheClosedFormOfTheBubble) {
  const auto seconds = [](const std::string& flags, int64_t ranks) {
    return StepClock(small_run("--make-vocab-size-divisible-by 8 --pad-vocab-size-to 8 " + flags, ranks), multiplier())
        .at();
  };
  const StepTime one = seconds("", 1);
  EXPECT_NEAR(
      one.seconds,
      24 * 3 * (8 * (2 * 33 * 12.0 * 48 * 48) + 2 * 33 * 48.0 * 8) / 2000 + 24 * 8 * 3.5 * 4 * 33 * 34 / 2 * 48 / 2000,
      1e-6 * one.seconds);
  EXPECT_EQ(one.limit(), "compute");
  EXPECT_NEAR(one.limit_share(), 1, 1e-9);
  const StepTime four = seconds("--pipeline-model-parallel-size 4", 4);
  EXPECT_NEAR(four.seconds, one.seconds / 4 * (8 + 3) / 8.0, 0.01 * four.seconds);
  EXPECT_NEAR(four.parts.bubble / four.seconds, 3 / 11.0, 0.01);
  const StepTime split = seconds("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1", 4);
  EXPECT_NEAR(split.parts.bubble / split.seconds, 3 / 19.0, 0.01);
  EXPECT_LT(seconds("--pipeline-model-parallel-size 4 --enable-zbh1-pipeline", 4).seconds, split.seconds);
  const StepTime again = seconds("--checkpoint-activations", 1);
  EXPECT_NEAR(again.parts.recompute, one.parts.matrices / 3 + one.parts.attention / 3.5, 0.01 * again.seconds);
  EXPECT_NEAR(again.hardware_flops * again.seconds / (one.hardware_flops * one.seconds), 4 / 3.0, 1e-9);
}

TEST(StepTime, PartsAddUpToTheStep) {
  for (const char* flags :
       {"", "--tensor-model-parallel-size 2 --sequence-parallel --seq-length 32 --max-position-embeddings 32",
        "--pipeline-model-parallel-size 4",
        "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2",
        "--pipeline-model-parallel-size 2 --enable-zbh1-pipeline --zero-stage 1", "--zero-stage 2", "--zero-stage 3",
        "--context-parallel-size 2 --seq-length 32 --max-position-embeddings 32", "--checkpoint-activations"})
    for (const char* name : {"a100-80gb", "h100"})
      for (const bool old : {false, true}) {
        Machine machine = find_machine(name);
        if (old)
          machine.program = {.fused_attention = false,
                             .overlaps_data = false,
                             .blocks_on_stages = true,
                             .divides_stages = true,
                             .sums_whole = true};
        const StepTime step = StepClock(small_run(flags, 8), machine).at();
        EXPECT_NEAR(step.parts.total(), step.seconds, 1e-9 * step.seconds) << flags << name;
        EXPECT_GT(step.seconds, 0);
        EXPECT_GT(step.limit_share(), 0.25) << "the largest of four";
      }
}

TEST(StepTime, MessagesCountByTheirRingsAndMayBeHidden) {
  const RunShape run = small_run("--tensor-model-parallel-size 2", 2);
  Machine machine = multiplier();
  machine.link_bandwidth = 1e6;
  const StepTime step = StepClock(run, machine).at();
  // Four sums a layer, one for words and one for the output layer's input, of b s h elements of two bytes, 8 times.
  EXPECT_NEAR(step.parts.tensor, 8 * (8 * 4 + 2) * (3 * 33 * 48 * 2) / 1e6, 1e-9);
  machine.program.overlaps_tensor = true;
  EXPECT_NEAR(StepClock(run, machine).at().parts.tensor, 8 * (8 * 2 + 1) * (3 * 33 * 48 * 2) / 1e6, 1e-9);

  const RunShape two = small_run("", 2);
  Machine exposed = multiplier();
  exposed.link_bandwidth = 1e6;
  exposed.program.overlaps_data = false;
  const double bytes = 4.0 * static_cast<double>(two.model.num_parameters());
  EXPECT_NEAR(StepClock(two, exposed).at().parts.data, bytes / 1e6, 1e-6) << "2 N (n - 1) / n of two ranks";
  exposed.program.overlaps_data = true;
  EXPECT_EQ(StepClock(two, exposed).at().parts.data, 0) << "the last backward pass takes minutes";
}

TEST(RunTime, AddsUpDaysEnergyAndMoney) {
  RunShape run = small_run("", 2);
  Machine machine = multiplier();
  machine.device_hour_price = 2.5;
  machine.power_overhead = 1.5;
  const StepClock clock(run, machine);
  const RunTime time = run_time(run, machine, clock, 24 * 10);
  EXPECT_EQ(time.num_steps, 10);
  EXPECT_EQ(time.periods.size(), 1U);
  EXPECT_DOUBLE_EQ(time.seconds, 10 * clock.at().seconds);
  EXPECT_DOUBLE_EQ(time.tokens, 240 * 33);
  EXPECT_DOUBLE_EQ(time.device_hours, 2 * time.seconds / 3600);
  EXPECT_DOUBLE_EQ(time.device_kwh, time.device_hours);  // 1,000 W
  EXPECT_DOUBLE_EQ(time.site_kwh, 1.5 * (time.device_hours + time.seconds / 3600));
  EXPECT_DOUBLE_EQ(time.price, 2.5 * time.device_hours);
  EXPECT_EQ(time.ramp_steps, 0);

  run = small_run("--rampup-batch-size 6 6 60", 1);
  const RunTime ramped = run_time(run, machine, StepClock(run, machine), 240);
  // Steps of 6 until 20 samples, of 12 until 40, of 18 until the ramp's 60 are passed.
  std::vector<std::pair<int64_t, int64_t>> sizes;
  for (const BatchPeriod& period : ramped.periods) sizes.emplace_back(period.global_batch_size, period.num_steps);
  EXPECT_EQ(sizes, (std::vector<std::pair<int64_t, int64_t>>{{6, 4}, {12, 2}, {18, 1}, {24, 7}}));
  EXPECT_EQ(ramped.ramp_steps, 7);
  EXPECT_EQ(ramped.num_steps, 14);
}

// As many copies as nodes hold, the devices that are left over, and the nearest batch that the copies can divide.
TEST(NodeChanges, CopiesSparesAndBatchesAreThoseOfThePlainDivision) {
  const RunShape run = small_run(
      "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers 12 "
      "--global-batch-size 36 --train-samples 360",
      12);
  ASSERT_EQ(run.grid.data, 3);
  const std::vector<NodeChange> changes = node_changes(run, multiplier(), 360);
  // Copies of 4 devices: a node of 8 holds two. 36 samples are 12 micro-batches, which 2, 4 and 6 copies divide.
  std::vector<std::vector<int64_t>> rows;
  for (const NodeChange& change : changes)
    rows.push_back({change.num_nodes, change.data, change.spare_devices, change.global_batch_size});
  EXPECT_EQ(rows, (std::vector<std::vector<int64_t>>{{1, 2, 0, 36}, {2, 4, 0, 36}, {3, 6, 0, 36}}));
  // All of it products: twice the copies, half the micro-batches of each; two stages wait for one micro-batch more.
  EXPECT_NEAR(changes[0].step.seconds / changes[1].step.seconds, (6 + 1) / (3.0 + 1), 0.02);
  EXPECT_DOUBLE_EQ(changes[0].seconds, 10 * changes[0].step.seconds);
  EXPECT_DOUBLE_EQ(changes[2].device_hours, 24 * changes[2].seconds / 3600);

  Machine six = multiplier();
  six.devices_per_node = 3;
  const RunShape seven = small_run("--tensor-model-parallel-size 2 --global-batch-size 42 --train-samples 420", 14);
  rows.clear();
  for (const NodeChange& change : node_changes(seven, six, 420))
    rows.push_back({change.num_nodes, change.data, change.spare_devices, change.global_batch_size});
  // Seven copies of two on five nodes of three (one device left over). Micro-batches of 3 over 6 copies: 36 or 54; over
  // 9 copies 27 or 54; over 8 copies 48.
  EXPECT_EQ(rows, (std::vector<std::vector<int64_t>>{{4, 6, 0, 36}, {5, 7, 1, 42}, {6, 9, 0, 54}}));
}

TEST(NodeChanges, TextsHoldTheFigures) {
  const RunShape run = small_run("--rampup-batch-size 6 6 60", 1);
  const Machine machine = multiplier();
  const RunTime time = run_time(run, machine, StepClock(run, machine), 240);
  const std::string table = timetable_text(run, machine, time);
  for (const char* part : {"Timetable of the batch", "until step", "tokens so far"})
    EXPECT_NE(table.find(part), std::string::npos) << part << " in\n" << table;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 2 + 1 + 4) << "title, head and four sizes\n" << table;
  const std::string text = node_change_text(run, node_changes(run, machine, 240));
  for (const char* part : {"copies of 1 devices", "spare devices", "device-hours"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

}  // namespace
}  // namespace espalier::plan
