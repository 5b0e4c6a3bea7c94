// What the options of parallel training mean, and what is refused with the nearest layout that works.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/format.h"
#include "config/run_config.h"
#include "plan/partition.h"

namespace espalier::config {
namespace {

using namespace test;

using Words = std::vector<std::string>;

struct Parallel : RunOptions {
  Problems problems;

  explicit Parallel(const std::string& flags, int64_t num_ranks = 1) : RunOptions(families::gpt_family()) {
    table.parse(split_blanks("--num-layers 12 --hidden-size 48 --num-attention-heads 12 --seq-length 36 "
                             "--max-position-embeddings 36 --lr 1e-3 --train-iters 10 --micro-batch-size 1 " +
                             flags),
                problems);
    config.num_ranks = num_ranks;
    resolve(config, table, problems);
  }
};

const std::string kTp = "--tensor-model-parallel-size ", kPp = "--pipeline-model-parallel-size ",
                  kCp = "--context-parallel-size ", kVp = "--num-layers-per-virtual-pipeline-stage ";

struct ParallelCase {
  std::string flags;
  int64_t num_ranks;
  std::string message;
};

void expect_parallel_messages(const std::vector<ParallelCase>& cases) {
  for (const ParallelCase& example : cases)
    EXPECT_EQ(Parallel(example.flags, example.num_ranks).problems.messages(), Words{example.message}) << example.flags;
}

TEST(ParallelOptions, ScheduleFollowsFromTheFlags) {
  const auto schedule = [](const std::string& flags, int64_t num_ranks) {
    const Parallel run(flags, num_ranks);
    EXPECT_EQ(run.problems.messages(), Words{}) << flags;
    return std::pair(run.config.parallel.pipeline_schedule, run.config.parallel.num_chunks);
  };
  EXPECT_EQ(schedule("", 1), std::pair(ScheduleKind::k1F1B, int64_t{1}));
  EXPECT_EQ(schedule(kPp + "2 --enable-zbh1-pipeline", 2), std::pair(ScheduleKind::kZeroBubble, int64_t{1}));
  EXPECT_EQ(schedule(kPp + "2 --global-batch-size 4 " + kVp + "2", 2),
            std::pair(ScheduleKind::kInterleaved, int64_t{3}));
  EXPECT_EQ(schedule(kPp + "2 " + kVp + "6", 2), std::pair(ScheduleKind::k1F1B, int64_t{1})) << "one chunk";
}

TEST(ParallelOptions, ZeroStageIsLiteralWithoutDeepSpeed) {
  const auto stage = [](const std::string& flags) { return Parallel(flags, 2).config.parallel.zero_stage; };
  EXPECT_EQ(stage(""), 0);
  EXPECT_EQ(stage("--zero-stage 0 --bf16"), 0);
  EXPECT_EQ(stage("--zero-stage 3"), 3);
  EXPECT_EQ(stage("--use-distributed-optimizer"), 1);
  EXPECT_EQ(stage("--use-distributed-optimizer --zero-stage 2"), 2);
  EXPECT_EQ(Parallel("--use-distributed-optimizer --zero-stage 0").problems.messages(),
            Words{"--use-distributed-optimizer means --zero-stage 1, not --zero-stage 0 (command line); give one"});
}

TEST(ParallelOptions, ZeroStageIsReadAsDeepSpeedReadsIt) {
  const auto stage = [](const std::string& flags) {
    return Parallel("--deepspeed " + flags, 2).config.parallel.zero_stage;
  };
  EXPECT_EQ(stage(""), 1) << "upstream's default";
  EXPECT_EQ(stage("--zero-stage 0"), 0);
  EXPECT_EQ(stage("--zero-stage 0 --fp16"), 0);
  EXPECT_EQ(stage("--zero-stage 0 --bf16"), 1);
  EXPECT_EQ(Parallel("--deepspeed --zero-stage 0 --bf16").config.parallel.zero_reason,
            "--zero-stage 0 under --deepspeed with --bf16 is read as 1: DeepSpeed's bf16 optimizer divides its state "
            "over data-parallel ranks, but not its fp32 gradients");
  EXPECT_EQ(Parallel("--zero-stage 0 --bf16").config.parallel.zero_reason, "");
}

// Replicas on the CPUs of one machine divide the optimizer's work where nothing is said.
TEST(ParallelOptions, ZeroStageIsChosenForReplicasOnOneMachine) {
  struct Chosen : RunOptions {
    explicit Chosen(const std::string& flags, int64_t num_ranks, bool stays_on_one_machine = true)
        : RunOptions(families::gpt_family()) {
      Problems problems;
      config.num_ranks = num_ranks;
      config.stays_on_one_machine = stays_on_one_machine;
      table.parse(split_blanks("--num-layers 12 --hidden-size 48 --num-attention-heads 12 --seq-length 36 "
                               "--max-position-embeddings 36 --lr 1e-3 --train-iters 10 --micro-batch-size 1 "
                               "--device cpu " +
                               flags),
                  problems);
      choose_zero_stage(config, table, problems);
      resolve(config, table, problems);
      EXPECT_EQ(problems.messages(), Words{}) << flags;
    }
    int64_t stage() const { return config.parallel.zero_stage; }
    bool says_why() const { return !config.parallel.zero_reason.empty(); }
  };
  const Chosen chosen("", 3);
  EXPECT_EQ(chosen.stage(), 1);
  EXPECT_EQ(chosen.config.parallel.zero_reason,
            "the 3 replicas on this machine divide the optimizer's state and its work (--zero-stage 0: each holds and "
            "updates all of it)");
  EXPECT_NE(chosen.table.to_toml().find("zero_stage = 1\n"), std::string::npos) << "a replay does as the run did";
  EXPECT_EQ(Chosen(kCp + "2", 2).stage(), 1) << "context ranks hold the same parameters";
  EXPECT_TRUE(Chosen(kTp + "2", 4).says_why());

  EXPECT_EQ(Chosen("", 3, false).stage(), 0);
  EXPECT_EQ(Chosen("", 1).stage(), 0);
  EXPECT_EQ(Chosen(kTp + "2 " + kPp + "2", 4).stage(), 0) << "one replica";
  EXPECT_EQ(Chosen("--device cuda", 2).stage(), 0);
  EXPECT_EQ(Chosen("--device auto", 2).stage(), std::filesystem::exists("/dev/nvidiactl") ? 0 : 1);
  EXPECT_EQ(Chosen("--check-replicas 10", 2).stage(), 0);
  EXPECT_EQ(Chosen("--check-replicas-policy repair", 2).stage(), 0);
  EXPECT_EQ(Chosen("--grad-reduce-type bf16", 2).stage(), 0);
  EXPECT_EQ(Chosen("--grad-reduce-in-bf16", 2).stage(), 0);
  EXPECT_EQ(Chosen("--optimizer muon", 2).stage(), 0) << "whose directions are exchanged besides";
  EXPECT_EQ(Chosen("--optimizer lion", 2).stage(), 1);
  for (const std::string flags : {"--zero-stage 0", "--zero-stage 2", "--use-distributed-optimizer", "--deepspeed"})
    EXPECT_FALSE(Chosen(flags, 2).says_why()) << flags;
  EXPECT_EQ(Chosen("--zero-stage 0", 2).stage(), 0);
  EXPECT_EQ(Chosen("--zero-stage 2", 2).stage(), 2);
}

TEST(ParallelOptions, KeptInputsAreDividedOnlyWhereRecomputeKeepsThem) {
  const auto divided = [](const std::string& flags) {
    return Parallel(flags, 2).config.parallel.distribute_saved_activations;
  };
  EXPECT_TRUE(divided(kTp + "2 --checkpoint-activations --distribute-checkpointed-activations"));
  EXPECT_TRUE(divided(kTp + "2 --recompute-granularity full --distribute-saved-activations"));
  EXPECT_TRUE(divided(kTp + "2 --checkpoint-activations --partition-activations"));
  EXPECT_FALSE(divided(kTp + "2 --checkpoint-activations --partition-activations --sequence-parallel"));
  EXPECT_FALSE(divided("--checkpoint-activations --partition-activations"));
  EXPECT_EQ(Parallel("--distribute-checkpointed-activations").problems.messages(),
            Words{"--distribute-checkpointed-activations (command line) needs --checkpoint-activations or "
                  "--recompute-granularity full: it divides what they keep"});
}

TEST(ParallelOptions, LayoutsThatDivideAreAccepted) {
  for (const auto& [flags, ranks] : std::vector<std::pair<std::string, int64_t>>{
           {kTp + "2 " + kPp + "2 " + kCp + "2 --sequence-parallel", 16},
           {kTp + "12 --sequence-parallel", 12},
           {kTp + "1 --ds-sequence-parallel-size 3", 3},
           {kPp + "4 --pp-partition-method list:2,4,4,2", 4},
           {kPp + "5", 5},
           {kPp + "12", 12},
           {kTp + "3 --zero-stage 3", 6},
           {"--DDP-impl local --distributed-backend gloo --distributed-timeout-minutes 5 --check-replicas 10 "
            "--check-replicas-policy repair --grad-reduce-type bf16",
            2}})
    EXPECT_EQ(Parallel(flags, ranks).problems.messages(), Words{}) << flags;
}

TEST(ParallelOptions, PartitionOfARunIsTheOptions) {
  const Parallel run(kPp + "5", 5);
  const plan::Partition partition = plan::make_partition(run_shape(run.config));
  EXPECT_EQ(partition.num_layers, 12);
  EXPECT_EQ(partition.stage_of(0), 0);
  EXPECT_EQ(partition.stage_of(13), 4);
  Parallel heavy(kPp + "4 --pp-partition-method parameters", 4);
  set_vocabulary(heavy.config, 1'000'000);
  try {
    plan::make_partition(run_shape(heavy.config));
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("--pp-partition-method parameters leaves stage 0 of 4 without"),
              std::string::npos)
        << error.what();
  }
}

TEST(ParallelOptions, WhatDoesNotDivideIsRefusedWithTheNearest) {
  expect_parallel_messages({
      {kTp + "2 " + kPp + "2", 6,
       "6 processes cannot be divided into copies of the model of 4 (tensor 2 * context 1 * pipeline 2); use 4 or 8"},
      {kTp + "5", 5,
       "--tensor-model-parallel-size 5 (command line) does not divide --num-attention-heads 12 (command line); use 4 "
       "or 6"},
      {kTp + "2 --hidden-size 96 --optimizer adam8bit", 2,
       "--tensor-model-parallel-size 2 (command line) cuts the rows of layers.0.self_attention.dense.weight and others "
       "within a block of 32 elements whose moments share a scale in fp8; use a tensor-parallel size of 1, or moments "
       "in bf16"},
      {kTp + "4 " + kCp + "2", 8,
       "--context-parallel-size 2 (command line) does not divide the 3 heads of a tensor rank (12 / 4), which "
       "attention exchanges; use 1 or 3"},
      {kCp + "4 --seq-length 34", 4,
       "--context-parallel-size 4 (command line) does not divide the sequence length 34; use 2 or 17"},
      {kTp + "4 --sequence-parallel --seq-length 34", 4,
       "--sequence-parallel: --tensor-model-parallel-size 4 (command line) does not divide the 34 tokens of a context "
       "rank; use a tensor-parallel size of 2 or 17, a sequence length of 32 or 36, or leave --sequence-parallel out"},
      {kPp + "13", 13,
       "--pipeline-model-parallel-size 13 (command line) is more than --num-layers 12 (command line); use at most 12"},
      {kPp + "4 --pp-partition-method uniform --num-layers 4", 4,
       "--pp-partition-method uniform (command line) leaves stage 0 of 4 without a transformer layer; use "
       "list:1,1,1,1"},
      {kPp + "2 --zero-stage 2", 4,
       "--zero-stage 2 (command line) needs one pipeline stage, and --pipeline-model-parallel-size 2 (command line); "
       "use --zero-stage 1, or --pipeline-model-parallel-size 1"},
      {"--accumulate-allreduce-grads-in-fp32 --grad-reduce-type bf16", 1,
       "--accumulate-allreduce-grads-in-fp32 and --grad-reduce-type bf16 (command line) are mutually exclusive; give "
       "one"},
  });
}

TEST(ParallelOptions, WhatCannotBeAddedInCanonicalOrderIsRefused) {
  const std::string canonical = "--canonical-reduction --global-batch-size 12 ";
  for (const auto& [flags, ranks] : std::vector<std::pair<std::string, int64_t>>{
           {canonical, 3}, {canonical + "--zero-stage 3", 4}, {canonical + kPp + "2", 4}, {canonical + kCp + "2", 4}})
    EXPECT_EQ(Parallel(flags, ranks).problems.messages(), Words{}) << flags;
  expect_parallel_messages({
      {canonical + kPp + "2 " + kVp + "3", 2,
       "--canonical-reduction needs stages of one part, and --num-layers-per-virtual-pipeline-stage 3 (command line) "
       "divides them; leave one out"},
      {canonical + kPp + "2 --enable-zbh1-pipeline", 2,
       "--canonical-reduction needs the gradients of one micro-batch after another, and --enable-zbh1-pipeline puts "
       "some "
       "of them off; leave one out"},
      {canonical + "--grad-reduce-in-bf16", 2,
       "--canonical-reduction needs sums that are not rounded on their way: --grad-reduce-type fp32 instead of bf16"},
      {canonical + "--device cuda", 1,
       "--canonical-reduction is of runs on the CPU, and --device cuda (command line) is not; leave one out"},
  });
}

TEST(ParallelOptions, WhatAnInterleavedPipelineCannotDoIsRefusedWithTheNearest) {
  expect_parallel_messages({
      {kVp + "1", 1,
       "--num-layers-per-virtual-pipeline-stage 1 (command line) needs a --pipeline-model-parallel-size of 2 or more; "
       "leave it out"},
      {kPp + "5 " + kVp + "1", 5,
       "--num-layers-per-virtual-pipeline-stage 1 (command line): --num-layers 12 (command line) is not a multiple of "
       "the 5 pipeline stages, and the parts of an interleaved pipeline are equal; use 10 or 15 layers, or 4 or 6 "
       "stages, or leave it out"},
      {kPp + "2 " + kVp + "4", 2,
       "--num-layers-per-virtual-pipeline-stage 4 (command line) does not divide the 6 layers of a stage; use 3 or 6"},
      {kPp + "2 " + kVp + "3 --global-batch-size 7", 2,
       "--global-batch-size 7 (command line) is not a multiple of --micro-batch-size 1 (command line) * data-parallel "
       "size 1 * pipeline stages 2 (interleaved); use 6 or 8"},
      {kPp + "2 " + kVp + "3 --global-batch-size 4 --enable-zbh1-pipeline", 2,
       "--enable-zbh1-pipeline has one chunk per stage and cannot be combined with "
       "--num-layers-per-virtual-pipeline-stage 3 "
       "(command line); give one of the two"},
      {kPp + "2 " + kVp + "3 --global-batch-size 4 --pp-partition-method list:5,7", 2,
       "--pp-partition-method list:5,7 (command line): an interleaved pipeline has the same number of layers in each "
       "of its 4 parts; leave the option out, or --num-layers-per-virtual-pipeline-stage"},
  });
}

}  // namespace
}  // namespace espalier::config
