#include "plan/messages.h"

#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/support/gpt_options.h"

namespace espalier::plan {
namespace {

// 4 layers of 48, 12 heads of 4, 36 tokens, 2 samples, fp32, 1,280 words: bytes of [s, b, h] are 13,824.
constexpr double kHidden = 36 * 2 * 48 * 4;
constexpr double kLayer = 12 * 48 * 48 + 13 * 48, kWords = 1280 * 48, kNorm = 2 * 48;

std::vector<StageMessages> messages(const std::string& flags, int64_t num_ranks) {
  const RunShape run = test::resolved_shape(
      "--num-layers 4 --hidden-size 48 --num-attention-heads 12 --seq-length 36 --max-position-embeddings 36 --lr 1e-3 "
      "--train-iters 10 --micro-batch-size 2 --position-embedding-type alibi --pad-vocab-size-to 1280 "
      "--global-batch-size 24 " +
          flags,
      num_ranks);
  return plan_messages(run, make_partition(run));
}

TEST(Messages, OneProcessSendsNothing) { EXPECT_EQ(messages("", 1)[0].total(), 0); }

TEST(Messages, DataParallelRanksSendTheirGradientsTwiceRound) {
  const double elements = 4 * kLayer + kNorm + kWords;
  EXPECT_DOUBLE_EQ(messages("", 3)[0].data, 2 * 4 * elements * 2 / 3);
  EXPECT_DOUBLE_EQ(messages("--grad-reduce-type bf16", 3)[0].data, 2 * 2 * elements * 2 / 3);
  // Reduce-scatter of fp32 gradients, all-gather of bf16 weights.
  EXPECT_DOUBLE_EQ(messages("--bf16 --zero-stage 1", 3)[0].data, (4 + 2) * elements * 2 / 3);
}

// What a step of 4 micro-batches sends, in elements: of a layer, weights and biases of columns are split over tensor
// ranks and pass; norms and biases of rows stay, as does the last norm.
constexpr double kPassing = 4 * (12 * 48 * 48 + 7 * 48), kStaying = 4 * 6 * 48 + kNorm;

TEST(Messages, GradientsThatPassAreSentInEveryMicroBatch) {
  // The words' go from the embedding of a micro-batch to the output of the next: 5 times.
  const double gradients = 4 * kPassing + 5 * kWords + kStaying, weights = kPassing + kWords + kStaying;
  EXPECT_DOUBLE_EQ(messages("--zero-stage 2", 3)[0].data, (4 * gradients + 4 * weights) * 2 / 3);
  EXPECT_DOUBLE_EQ(messages("--bf16 --zero-stage 2 --grad-reduce-type bf16", 3)[0].data,
                   (2 * gradients + 2 * weights) * 2 / 3);
  // Embedding and output apart: 4 times each.
  EXPECT_DOUBLE_EQ(messages("--zero-stage 2 --untie-embeddings-and-output-weights", 3)[0].data,
                   (4 * (gradients + 3 * kWords) + 4 * (weights + kWords)) * 2 / 3);
  // Nobody to share with.
  EXPECT_EQ(messages("--zero-stage 2", 1)[0].data, 0);
}

TEST(Messages, CanonicalSumsAreSentAsTheyAre) {
  // Four micro-batches that follow one another are one sum; the six of 12 that one of two ranks has are two.
  const double elements = 4 * kLayer + kNorm + kWords;
  EXPECT_DOUBLE_EQ(messages("--canonical-reduction", 3)[0].data, 2 * 4 * elements * 2 / 3);
  EXPECT_DOUBLE_EQ(messages("--canonical-reduction --global-batch-size 12 --micro-batch-size 1", 2)[0].data,
                   (2 + 1) * 4 * elements / 2);
  // Under ZeRO 2 once per micro-batch, also what stays.
  const double gradients = 4 * (kPassing + kWords + kStaying), weights = kPassing + kWords + kStaying;
  EXPECT_DOUBLE_EQ(messages("--canonical-reduction --zero-stage 2", 3)[0].data, (4 * gradients + 4 * weights) * 2 / 3);
}

TEST(Messages, WeightsThatPassAreGatheredForEveryRunOfALayer) {
  // Forward and backward of 4 micro-batches; what is before and after the layers once a step.
  const double gradients = 4 * kPassing + 5 * kWords + kStaying;
  EXPECT_DOUBLE_EQ(messages("--bf16 --zero-stage 3", 3)[0].data,
                   (4 * gradients + 2 * (8 * kPassing + kWords + kStaying)) * 2 / 3);
  EXPECT_DOUBLE_EQ(messages("--zero-stage 3 --checkpoint-activations", 3)[0].data,
                   (4 * gradients + 4 * (12 * kPassing + kWords + kStaying)) * 2 / 3);
  // One layer of the four runs forward twice.
  const std::string block = " --recompute-granularity full --recompute-method block --recompute-num-layers 1";
  EXPECT_DOUBLE_EQ(messages("--zero-stage 3" + block, 3)[0].data,
                   (4 * gradients + 4 * (9 * kPassing + kWords + kStaying)) * 2 / 3);
}

TEST(Messages, TensorRanksAddUpFourTimesALayer) {
  // 12 micro-batches; 4 layers of 4 all-reduces, the embedding's and the output's.
  EXPECT_DOUBLE_EQ(messages("--tensor-model-parallel-size 4", 4)[0].tensor, 12 * (16 + 2) * 2 * kHidden * 3 / 4);
  EXPECT_DOUBLE_EQ(messages("--tensor-model-parallel-size 4 --checkpoint-activations", 4)[0].tensor,
                   12 * (24 + 2) * 2 * kHidden * 3 / 4);
  // The same with sequence parallelism (Korthikanti et al. 2022, section 4.2.2), and the gradients of norms and biases.
  EXPECT_DOUBLE_EQ(messages("--tensor-model-parallel-size 4 --sequence-parallel", 4)[0].tensor,
                   12 * (16 + 2) * 2 * kHidden * 3 / 4 + 2 * 4 * (4 * (4 * 48 + 2 * 48) + kNorm) * 3 / 4);
}

TEST(Messages, StagesPassActivationsOnAndBack) {
  const auto stages = messages("--pipeline-model-parallel-size 2", 2);
  EXPECT_DOUBLE_EQ(stages[0].pipeline, 12 * kHidden);
  EXPECT_DOUBLE_EQ(stages[1].pipeline, 12 * kHidden);
  EXPECT_DOUBLE_EQ(stages[0].tied, 2 * 4 * kWords / 2);
  EXPECT_DOUBLE_EQ(stages[1].tied, stages[0].tied);
  // Two chunks a stage: parts 0 to 3, and three boundaries.
  const auto chunks = messages("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1", 2);
  EXPECT_DOUBLE_EQ(chunks[0].pipeline, 12 * 3 * kHidden);
  EXPECT_DOUBLE_EQ(messages("--pipeline-model-parallel-size 4", 4)[1].pipeline, 12 * 2 * kHidden);
  EXPECT_EQ(messages("--pipeline-model-parallel-size 4", 4)[1].tied, 0);
}

TEST(Messages, ContextRanksTradePositionsForHeads) {
  // Of a half sequence each: query, key, value and result, both ways, half of each leaves.
  EXPECT_DOUBLE_EQ(messages("--context-parallel-size 2", 2)[0].context, 12 * 4 * 2 * 4 * (kHidden / 2) / 2);
}

}  // namespace
}  // namespace espalier::plan
