#include "plan/run_plan.h"

#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/support/gpt_options.h"

namespace espalier::plan {
namespace {

RunPlan plan_of(const std::string& flags, int64_t num_ranks) {
  return plan_run(test::resolved_shape(
      "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 --max-position-embeddings 512 --lr "
      "1e-3 --train-samples 320 --micro-batch-size 4 --bf16 --global-batch-size 32 --pad-vocab-size-to 128 "
      "--position-embedding-type alibi " +
          flags,
      num_ranks));
}

const std::string kFour = "--pipeline-model-parallel-size 4 ";

TEST(RunPlan, BubblesAreTheClosedForms) {
  EXPECT_DOUBLE_EQ(plan_of(kFour, 4).equal_bubble, 3 / (8.0 + 3));
  EXPECT_DOUBLE_EQ(plan_of(kFour + "--num-layers-per-virtual-pipeline-stage 1", 4).equal_bubble, 3 / (2 * 8.0 + 3));
  EXPECT_DOUBLE_EQ(plan_of(kFour + "--enable-zbh1-pipeline", 4).equal_bubble, 3 / (3 * 8.0 + 3));
  EXPECT_EQ(plan_of("", 1).equal_bubble, 0);
  // A small vocabulary: the last stage takes hardly longer, and the clock comes near the closed form.
  EXPECT_NEAR(plan_of(kFour, 4).simulation.bubble_share, 3 / 11.0, 0.005);
}

TEST(RunPlan, TheSmallestBatchOfARampIsNamed) {
  const RunPlan plan = plan_of(kFour + "--rampup-batch-size 4 4 28", 4);
  EXPECT_EQ(plan.first_num_micro_batches, 1);
  EXPECT_DOUBLE_EQ(plan.first_bubble, 3 / 4.0);
}

// The tables drawn by hand of Narayanan et al. 2021, figure 4 (top), with a backward twice as long as a forward.
TEST(RunPlan, ScheduleIsDrawnInText) {
  EXPECT_EQ(schedule_text(plan_of("--pipeline-model-parallel-size 2 --global-batch-size 12", 2), 80),
            "      0   01..aa2bb.cc\n"
            "      1   .0aa1bb2cc..\n");
  EXPECT_EQ(schedule_text(plan_of("--pipeline-model-parallel-size 2 --global-batch-size 12", 2), 10),
            "      0   01..aa ...\n"
            "      1   .0aa1b ...\n");
  EXPECT_EQ(
      schedule_text(plan_of("--pipeline-model-parallel-size 2 --global-batch-size 8 --enable-zbh1-pipeline", 2), 80),
      "      0   01.aAbB\n"
      "      1   .0a1bAB\n");
}

TEST(RunPlan, TextHoldsEveryFigure) {
  const RunPlan plan = plan_of(kFour + "--use-distributed-optimizer", 8);
  const std::string text = to_text(plan, int64_t{1} << 30);
  for (const char* part :
       {"processes    8 = tensor 1 * data 2 * pipeline 4, ZeRO stage 1", "4 micro-batches of 4", "1F1B; bubble 42.9 %",
        "12 a parameter: weights 2, gradients 4, optimizer 6", "checkpoint   1.3", "fits into 1.00 GiB",
        "0       embedding, layers 0-1", "3       layers 6-7, output", "sends in a step", "Stages over time"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_EQ(to_text(plan_of("", 1), std::nullopt).find("Stages over time"), std::string::npos);
  EXPECT_NE(to_text(plan_of("", 1), 1 << 20).find("does not fit into 1.00 MiB"), std::string::npos);
}

TEST(RunPlan, ARankIsShownParameterByParameter) {
  const RunPlan plan = plan_of(
      "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --zero-stage 1 --global-batch-size 64", 8);
  // Rank 6: tensor 0, data 1, pipeline 1. Its second half of what two data-parallel ranks share.
  const std::string text = rank_text(plan, 6);
  for (const char* part : {"rank         6 of 8: tensor 0, context 0, data 1, pipeline 1",
                           "layers.4.mlp.dense_h_to_4h.weight                4096 x 1024   2048 x 1024   none",
                           "word_embeddings.weight (copy)                    128 x 1024    64 x 1024     32768-65535",
                           "schedule     F0 B0 F1 B1"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_EQ(text.find("layers.3."), std::string::npos) << "stage 0 holds it";
  EXPECT_THROW(rank_text(plan, 8), UserError);
}

// Every element that is opened is closed, and every action has a rectangle.
TEST(RunPlan, PictureIsWellFormed) {
  for (const std::string& flags :
       {std::string(), kFour, kFour + "--enable-zbh1-pipeline", kFour + "--num-layers-per-virtual-pipeline-stage 1"}) {
    const RunPlan plan = plan_of(flags, 4);
    const std::string svg = to_svg(plan, int64_t{1} << 30);
    const auto count = [&svg](const std::string& part) {
      size_t found = 0;
      for (size_t at = 0; (at = svg.find(part, at)) != std::string::npos; ++at) ++found;
      return found;
    };
    EXPECT_TRUE(svg.starts_with("<svg xmlns=")) << flags;
    EXPECT_TRUE(svg.ends_with("</svg>\n")) << flags;
    EXPECT_EQ(count("<text"), count("</text>"));
    EXPECT_EQ(count("<rect") + count("<line"), count("/>"));
    size_t actions = 0;
    for (const auto& table : plan.tables) actions += plan.partition.num_stages > 1 ? table.size() : 0;
    EXPECT_GT(count("<rect"), actions);
  }
}

}  // namespace
}  // namespace espalier::plan
