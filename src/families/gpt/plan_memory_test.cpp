#include "plan/memory.h"

#include <gtest/gtest.h>

#include "base/format.h"
#include "spec/optimizer.h"
#include "tests/support/gpt_options.h"

namespace espalier::plan {
namespace {

constexpr double kKiB = 1024, kGiB = kKiB * kKiB * kKiB, kTiB = kGiB * kKiB;

using test::resolved_shape;

const std::string kSmall =
    "--num-layers 6 --hidden-size 48 --num-attention-heads 12 --seq-length 36 --max-position-embeddings 36 --lr 1e-3 "
    "--train-iters 10 --micro-batch-size 2 --pad-vocab-size-to 1280 --position-embedding-type alibi ";

MemoryPlan plan_of(const RunShape& run) {
  return plan_memory(run, make_partition(run), default_products(run.precision));
}

// The table of Megatron-core's distributed optimizer (its docs, dist_optimizer): bytes per parameter.
TEST(Memory, BytesPerParameterAreThoseOfMegatronsTable) {
  for (const double d : {1.0, 2.0, 8.0, 64.0}) {
    const auto ranks = static_cast<int64_t>(d);
    EXPECT_DOUBLE_EQ(megatron_parameter_bytes(Precision::kFp16, false, ranks).total(), 20);
    EXPECT_DOUBLE_EQ(megatron_parameter_bytes(Precision::kFp16, true, ranks).total(), 4 + 16 / d);
    EXPECT_DOUBLE_EQ(megatron_parameter_bytes(Precision::kBf16, false, ranks).total(), 18);
    EXPECT_DOUBLE_EQ(megatron_parameter_bytes(Precision::kBf16, true, ranks).total(), 6 + 12 / d);
    EXPECT_DOUBLE_EQ(megatron_parameter_bytes(Precision::kFp32, false, ranks).total(), 16);
    EXPECT_DOUBLE_EQ(megatron_parameter_bytes(Precision::kFp32, true, ranks).total(), 8 + 8 / d);
    // Ours, where they are the same; and the later stages of Rajbhandari et al. 2020 with fp32 gradients.
    EXPECT_DOUBLE_EQ(parameter_bytes(Precision::kBf16, 0, ranks).total(), 18);
    EXPECT_DOUBLE_EQ(parameter_bytes(Precision::kBf16, 1, ranks).total(), 6 + 12 / d);
    EXPECT_DOUBLE_EQ(parameter_bytes(Precision::kBf16, 2, ranks).total(), 2 + 16 / d);
    EXPECT_DOUBLE_EQ(parameter_bytes(Precision::kBf16, 3, ranks).total(), 18 / d);
    EXPECT_DOUBLE_EQ(parameter_bytes(Precision::kFp32, 1, ranks).total(), 8 + 8 / d);
    EXPECT_DOUBLE_EQ(parameter_bytes(Precision::kFp16, 0, ranks).total(), 18) << "no fp16 copy of the gradients";
  }
}

// Counted by hand. Of the 34 bytes a token and hidden element in Korthikanti et al. 2022 (section 4.1), dropout's masks
// are drawn again instead of kept (3), a linear layer's result that only feeds an addition goes (2 + 2), gelu's input
// and result are 2 x 8, and attention keeps its result once. That leaves 16 tensors of the compute type: the layer's
// input, two norms' results, the stream between the halves; query, key and value; attention's result; twice 4 in the
// MLP.
TEST(Memory, ALayerKeepsSixteenHiddenSizesAToken) {
  const auto kept_by_layer = [](const std::string& flags, int64_t ranks) {
    const auto kept = [&](const char* layers) {
      const RunShape run = resolved_shape(kSmall + flags + layers, ranks);
      return part_activations(run, make_partition(run), 0, 0, ProductKind::kDirect).kept;
    };
    return kept(" --num-layers 3") - kept(" --num-layers 2");
  };
  const double tokens = 36 * 2, hidden = 48, heads = 12;
  const double statistics = tokens * 4 * 4;  // two norms, mean and reciprocal deviation
  EXPECT_DOUBLE_EQ(kept_by_layer("--bf16", 1), tokens * hidden * 2 * 16 + tokens * heads * 4 + statistics);
  // The layer's input and the stream between the halves are twice as wide.
  EXPECT_DOUBLE_EQ(kept_by_layer("--bf16 --fp32-residual-connection", 1),
                   tokens * hidden * 2 * 18 + tokens * heads * 4 + statistics);
  EXPECT_DOUBLE_EQ(kept_by_layer("", 1), tokens * hidden * 4 * 16 + tokens * heads * 4 + statistics);
  const double split = tokens * hidden * 2 * 12 / 4 + tokens * heads / 4 * 4;
  EXPECT_DOUBLE_EQ(kept_by_layer("--bf16 --tensor-model-parallel-size 4", 4),
                   tokens * hidden * 2 * 4 + split + statistics);
  // The residual stream is divided; what column-parallel layers gather is kept.
  EXPECT_DOUBLE_EQ(kept_by_layer("--bf16 --tensor-model-parallel-size 4 --sequence-parallel", 4),
                   tokens * hidden * 2 * (2 + 2 / 4.0) + split + statistics / 4);
  EXPECT_DOUBLE_EQ(kept_by_layer("--bf16 --checkpoint-activations", 1), tokens * hidden * 2);
  EXPECT_DOUBLE_EQ(kept_by_layer("--bf16 --checkpoint-activations --distribute-checkpointed-activations "
                                 "--tensor-model-parallel-size 4",
                                 4),
                   tokens * hidden * 2 / 4);
}

// Of what fits blocks a byte and a thirty-second for each moment, else 4: biases and norms.
TEST(Memory, BlocksOfMomentsAreCountedWithTheirScales) {
  const RunShape run = resolved_shape(kSmall + "--hidden-size 96 --optimizer adam8bit --bf16", 1);
  double expected = 0;
  for (const spec::ParamSpec& spec : run.model.params)
    expected += static_cast<double>(spec.num_elements()) * (2 + 4 + 2 * (spec.shape.size() == 2 ? 33.0 / 32 : 4.0));
  EXPECT_NEAR(checkpoint_bytes(run), expected, 1e-9 * expected);
  EXPECT_NEAR(parameter_bytes(run.precision, 0, 1, *run.optimizer).total(), 12 + 2.0 / 32, 1e-12);
}

// Weights, fp32 gradients, fp32 masters in bf16, and 4 bytes for each tensor that the optimizer keeps.
TEST(Memory, BytesFollowTheOptimizer) {
  struct Case {
    const char* flags;
    double fp32, bf16;
  };
  for (const Case& one :
       {Case{"", 16, 18}, Case{"--optimizer sgd ", 12, 14}, Case{"--optimizer sgd --sgd-momentum 0 ", 8, 10},
        Case{"--optimizer lion ", 12, 14}, Case{"--optimizer lamb ", 16, 18}, Case{"--optimizer adopt ", 16, 18},
        Case{"--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 ", 12, 14}, Case{"--exp-avg-sq-dtype bf16 ", 14, 16},
        Case{"--optimizer lion --exp-avg-dtype bf16 ", 10, 12}, Case{"--ema 0.999 ", 20, 22},
        Case{"--optimizer sgd --ema 0.999 ", 16, 18},
        Case{"--optimizer adamwschedulefree --lr-decay-style constant ", 20, 18},
        Case{"--optimizer sgdschedulefree --lr-decay-style constant ", 16, 14}}) {
    for (const bool bf16 : {false, true}) {
      const RunShape run = resolved_shape(kSmall + one.flags + (bf16 ? "--bf16" : ""), 1);
      const double bytes = bf16 ? one.bf16 : one.fp32, count = static_cast<double>(run.model.num_parameters());
      EXPECT_DOUBLE_EQ(parameter_bytes(run.precision, 0, 1, *run.optimizer).total(), bytes) << one.flags;
      EXPECT_DOUBLE_EQ(checkpoint_bytes(run), count * (bytes - 4)) << "no gradients: " << one.flags;
      // fp32 gradients are in the same flat buffer, padding included.
      const StageMemory memory = plan_of(run).stages[0];
      EXPECT_DOUBLE_EQ(memory.optimizer / (memory.gradients / 4), bytes - 4 - (bf16 ? 2 : 4)) << one.flags;
    }
  }
}

TEST(Memory, EarlierStagesHoldMoreMicroBatches) {
  const RunShape run = resolved_shape(kSmall + "--pipeline-model-parallel-size 3 --global-batch-size 16", 3);
  const MemoryPlan plan = plan_of(run);
  ASSERT_EQ(plan.stages.size(), 3U);
  EXPECT_EQ(plan.stages[0].most_alive, 3);
  EXPECT_EQ(plan.stages[2].most_alive, 1);
  EXPECT_NEAR(plan.stages[0].activations, 3 * plan.stages[0].kept_by_micro_batch, 1);
  EXPECT_NEAR(plan.stages[1].activations, 2 * plan.stages[1].kept_by_micro_batch, 1);
}

TEST(Memory, SplitWeightGradientsHoldNoMoreThanTheFirstStageOf1F1B) {
  const std::string flags = kSmall +
                            "--pipeline-model-parallel-size 3 --num-layers 12 --pp-partition-method "
                            "list:4,4,4 --bf16 --global-batch-size 16 ";
  const MemoryPlan joined = plan_of(resolved_shape(flags, 3));
  const MemoryPlan split = plan_of(resolved_shape(flags + "--enable-zbh1-pipeline", 3));
  // A middle stage, which neither embeds nor predicts. A pass that waits for its weight gradients keeps less than one
  // that waits for its backward; three passes of the two kinds are alive.
  EXPECT_LT(split.stages[1].activations, 3 * joined.stages[1].kept_by_micro_batch);
  EXPECT_GT(split.stages[1].activations, 2 * joined.stages[1].kept_by_micro_batch);
  EXPECT_DOUBLE_EQ(split.stages[0].activations, joined.stages[0].activations);
}

TEST(Memory, StagesHoldTheirParameters) {
  const RunShape run = resolved_shape(kSmall + "--pipeline-model-parallel-size 3", 3);
  const MemoryPlan plan = plan_of(run);
  const int64_t layer = 12 * 48 * 48 + 13 * 48, embedding = 1280 * 48;
  EXPECT_EQ(plan.stages[0].num_parameters, 2 * layer + embedding);
  EXPECT_EQ(plan.stages[1].num_parameters, 2 * layer);
  EXPECT_EQ(plan.stages[2].num_parameters, 2 * layer + 2 * 48 + embedding) << "with the tied copy";
}

// 6 layers of 64, which needs no padding: what the later stages of ZeRO divide by 2, and the two layers that are whole
// at a time.
TEST(Memory, LaterZeroStagesKeepPartsAndTwoLayersWhole) {
  const auto memory = [](const std::string& stage) {
    return plan_of(resolved_shape(kSmall + "--hidden-size 64 --num-attention-heads 4 --bf16 --zero-stage " + stage, 2))
        .stages[0];
  };
  // Norms, row biases and the embedding stay whole, the latter with its gradient divided.
  const double divided = 12 * 64 * 64 + (3 + 4) * 64, stays = 6 * 64, words = 1280 * 64;
  const StageMemory two = memory("2"), three = memory("3");
  EXPECT_DOUBLE_EQ(two.weights, 2 * (6 * (divided + stays) + words + 2 * 64));
  EXPECT_DOUBLE_EQ(two.gradients, 4 * (6 * (divided / 2 + stays) + words / 2 + 2 * 64));
  EXPECT_DOUBLE_EQ(two.gathered, 4 * (words + divided));
  EXPECT_DOUBLE_EQ(three.weights, 2 * (6 * (divided / 2 + stays) + words + 2 * 64));
  // Most is held at the output, where no layer is whole.
  EXPECT_DOUBLE_EQ(three.gathered, 4 * (words + divided));
  EXPECT_DOUBLE_EQ(three.optimizer, 12 * (6 * (divided + stays) + words + 2 * 64) / 2);
}

// A layer's tensors are larger than the output's: most is held while two layers are whole.
TEST(Memory, WideLayersAreWholeWhenMostIsHeld) {
  const double h = 512, divided = 12 * h * h + 7 * h;  // more than the embedding's 1280 h
  const StageMemory memory =
      plan_of(resolved_shape(kSmall + "--hidden-size 512 --num-attention-heads 4 --bf16 --zero-stage 3", 2)).stages[0];
  EXPECT_DOUBLE_EQ(memory.gathered, (4 + 2) * 2 * divided);
}

TEST(Memory, RoundedGradientsTravelAsCopies) {
  const std::string flags = kSmall + "--micro-batch-size 1 --seq-length 12 ";
  const RunShape run = resolved_shape(flags + "--grad-reduce-type bf16", 2);
  const StageMemory memory = plan_of(run).stages[0];
  EXPECT_EQ(memory.activations, 0);
  EXPECT_NEAR(memory.workspace, 2.0 * static_cast<double>(memory.num_parameters), 1e4);
  EXPECT_LT(plan_of(resolved_shape(flags, 2)).stages[0].workspace, memory.workspace);
}

// A power of two of micro-batches keeps a sum for each halving; from ZeRO 2 on a rank keeps them of its part, of all
// micro-batches of the step, and the tied embedding stays whole.
TEST(Memory, SumsInCanonicalOrderAreKept) {
  const auto memory = [](const std::string& flags, int64_t ranks) {
    return plan_of(resolved_shape(kSmall + "--micro-batch-size 1 --global-batch-size 16 " + flags, ranks)).stages[0];
  };
  const std::string canonical = "--canonical-reduction ";
  const auto of_each = [](const StageMemory& with, const StageMemory& without) {
    return (with.gradients - without.gradients) / without.gradients;
  };
  EXPECT_DOUBLE_EQ(of_each(memory(canonical, 1), memory("", 1)), 4);
  EXPECT_DOUBLE_EQ(of_each(memory(canonical, 4), memory("", 4)), 2);
  EXPECT_DOUBLE_EQ(of_each(memory(canonical, 16), memory("", 16)), 0);
  // After 14 of the 16 micro-batches there are three sums, of half of the elements.
  const StageMemory shared = memory(canonical + "--zero-stage 2", 2), plain = memory("--zero-stage 2", 2);
  const double whole = memory("--zero-stage 1", 2).gradients;
  EXPECT_NEAR((shared.gradients - plain.gradients) / whole, 3 / 2.0, 0.02);
  EXPECT_GT(shared.gathered, plain.gathered);
  // Of a unit what four ranks send, and the sums of a quarter.
  EXPECT_GE(memory(canonical, 4).workspace, whole * (1 + 3 / 4.0));
}

// The flags of the run (bigscience/train/tr11-176B-ml, tr11-176B-ml.slurm). Published: 176,247,271,424 parameters,
// 329 GB of bf16 weights and 2.3 TB a checkpoint (both by du, which counts GiB and TiB).
TEST(Memory, FiguresOfBloom176BAreThePublishedOnes) {
  const RunShape run = resolved_shape(
      "--deepspeed --pp-partition-method type:transformer|embedding --num-layers 70 --hidden-size 14336 "
      "--num-attention-heads 112 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 "
      "--rampup-batch-size 192 16 9_765_625 --global-batch-size 2048 --train-samples 220_000_000 --embed-layernorm "
      "--bf16 --position-embedding-type alibi --checkpoint-activations --pad-vocab-size-to 250880 --lr 6e-5 "
      "--zero-stage 0 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 12",
      384);
  EXPECT_EQ(run.grid.data, 8);
  EXPECT_EQ(run.zero_stage, 1) << run.zero_reason;
  EXPECT_EQ(run.model.num_parameters(), 176'247'271'424);
  EXPECT_NEAR(checkpoint_weight_bytes(run) / kGiB, 329, 1);
  EXPECT_NEAR(deepspeed_checkpoint_bytes(run) / kTiB, 2.3, 0.05);
  EXPECT_NEAR(checkpoint_bytes(run) / kTiB, 2.24, 0.01) << "each parameter once";
  const ParameterBytes each = parameter_bytes(Precision::kBf16, run.zero_stage, run.grid.data);
  EXPECT_DOUBLE_EQ(each.total(), 6 + 12 / 8.0);

  const MemoryPlan plan = plan_of(run);
  ASSERT_EQ(plan.stages.size(), 12U);
  const double layer = 12.0 * 14336 * 14336 / 4, embedding = 250880.0 * 14336 / 4;
  EXPECT_NEAR(static_cast<double>(plan.stages[0].num_parameters), 5 * layer + embedding, 1e6);
  EXPECT_NEAR(static_cast<double>(plan.stages[5].num_parameters), 6 * layer, 1e6);
  // Kept inputs of layers: 12 micro-batches of 5 layers of 2 x 2048 x 14336 bf16.
  EXPECT_NEAR(plan.stages[0].activations, 12 * (5 + 1 + 1) * 2.0 * 2048 * 14336 * 2, 0.03 * plan.stages[0].activations);
  EXPECT_LT(plan.largest().peak(), 80 * kGiB) << "it ran on A100s of 80 GB";
}

}  // namespace
}  // namespace espalier::plan
