#include "report/log_line.h"

#include <gtest/gtest.h>

#include <cmath>

namespace espalier::report {
namespace log_line_test {

// The expected lines were put together by Python's str.format from the format strings of Megatron-DeepSpeed's
// training_log and evaluate_and_print_results.

StepReport step_report() {
  StepReport report;
  report.step = 100, report.num_steps = 1000;
  report.consumed_samples = 25600, report.consumed_tokens = 52428800;
  report.global_batch_size = 256, report.sequence_length = 2048;
  report.step_seconds = 5.0;
  report.learning_rate = 1.5e-4, report.next_learning_rate = 1.484e-4;
  report.losses = {{.name = "lm loss", .value = 2.345678, .by_source = {}}};
  report.grad_norm = 1.23456;
  report.hardware_flops = 7.7e14;
  return report;
}

TEST(LogLine, IsMegatrons) {
  LogLine line;
  line.add(step_report());
  EXPECT_EQ(
      line.take(),
      " iteration      100/    1000 | consumed samples:        25600 | consumed tokens:     52428800 |"
      " elapsed time per iteration (s): 5.00 | learning rate: 1.484E-04 | global batch size:   256 |"
      " lm loss: 2.345678E+00 | grad norm: 1.235 | number of skipped iterations:   0 | number of nan iterations:   0 |"
      " samples per second: 51.200 | TFLOPs: 154.00 |");
}

TEST(LogLine, ShowsLossScaleZerosAndParamsNormInMegatronsOrder) {
  StepReport report = step_report();
  report.step_seconds = 2.5;
  report.num_ranks = 4;
  report.loss_scale = 65536, report.num_zeros = 17, report.params_norm = 101.0625;
  LogLine line;
  line.add(report);
  EXPECT_EQ(line.take(),
            " iteration      100/    1000 | consumed samples:        25600 | consumed tokens:     52428800 |"
            " elapsed time per iteration (s): 2.50 | learning rate: 1.484E-04 | global batch size:   256 |"
            " lm loss: 2.345678E+00 | loss scale: 65536.0 | grad norm: 1.235 | num zeros: 17.0 | params norm: 101.062 |"
            " number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 102.400 | "
            "TFLOPs: 77.00 |");
}

TEST(LogLine, MemoryOfAGpuIsMegatronsToo) {
  StepReport report = step_report();
  EXPECT_EQ(memory_line(report), "");
  report.gpu_memory =
      GpuMemory{.allocated = 3 << 19, .peak_allocated = 7 << 20, .reserved = 8 << 20, .peak_reserved = 33 << 18};
  EXPECT_EQ(memory_line(report),
            "[Rank 0] (after 100 iterations) memory (MB) | allocated: 1.5 | max allocated: 7.0 | reserved: 8.0 | max "
            "reserved: 8.2");
}

TEST(LogLine, AveragesTheStepsSinceTheLastLineAndStartsAgain) {
  LogLine line;
  StepReport report = step_report();
  report.step = 99, report.step_seconds = 3.0, report.losses[0].value = 4.0;
  line.add(report);
  report.step = 100, report.step_seconds = 5.0, report.losses[0].value = 3.0, report.grad_norm = 0.5;
  line.add(report);
  EXPECT_FALSE(line.empty());
  EXPECT_EQ(
      line.take(),
      " iteration      100/    1000 | consumed samples:        25600 | consumed tokens:     52428800 |"
      " elapsed time per iteration (s): 4.00 | learning rate: 1.484E-04 | global batch size:   256 |"
      " lm loss: 3.500000E+00 | grad norm: 0.500 | number of skipped iterations:   0 | number of nan iterations:   0 |"
      " samples per second: 64.000 | TFLOPs: 192.50 |");
  EXPECT_TRUE(line.empty());
  line.add(step_report());
  EXPECT_NE(line.take().find(" lm loss: 2.345678E+00 |"), std::string::npos) << "nothing of the steps before";
}

TEST(LogLine, ASkippedStepCountsButItsLossDoesNot) {
  LogLine line;
  StepReport report = step_report();
  line.add(report);
  report.skipped = true, report.losses[0].value = 50, report.loss_scale = 1024, report.grad_norm.reset();
  line.add(report);
  EXPECT_EQ(line.take(),
            " iteration      100/    1000 | consumed samples:        25600 | consumed tokens:     52428800 |"
            " elapsed time per iteration (s): 5.00 | learning rate: 1.484E-04 | global batch size:   256 |"
            " lm loss: 2.345678E+00 | loss scale: 1024.0 | number of skipped iterations:   1 | number of nan "
            "iterations:   0 |"
            " samples per second: 51.200 | TFLOPs: 154.00 |");
}

TEST(LogLine, ALossThatIsNotANumberDisappears) {
  LogLine line;
  StepReport report = step_report();
  report.nan = true, report.losses[0].value = std::nan(""), report.grad_norm = std::nan("");
  line.add(report);
  const std::string text = line.take();
  EXPECT_EQ(text.find("lm loss"), std::string::npos) << text;
  EXPECT_NE(text.find(" global batch size:   256 | grad norm: nan | number of skipped iterations:   0 |"
                      " number of nan iterations:   1 |"),
            std::string::npos)
      << text;
}

TEST(LogLine, NumbersWiderThanTheirFieldsPushTheRest) {
  StepReport report = step_report();
  report.step = 123456789, report.num_steps = 1234567890, report.consumed_samples = 1234567890123;
  report.consumed_tokens = 2500000000000000, report.next_learning_rate = 0;
  LogLine line;
  line.add(report);
  EXPECT_TRUE(line.take().starts_with(
      " iteration 123456789/1234567890 | consumed samples: 1234567890123 | consumed tokens: 2500000000000000 |"
      " elapsed time per iteration (s): 5.00 | learning rate: 0.000E+00 |"));
}

TEST(LogLine, LossesByDataSetAreMeansOverTheirTokens) {
  LogLine line;
  StepReport report = step_report();
  report.losses[0].by_source = {{"fr", 4.0, 100}, {"de", 2.0, 300}};
  line.add(report);
  report.losses[0].by_source = {{"de", 3.0, 100}};
  line.add(report);
  EXPECT_EQ(line.take_by_source(), " loss by data set | de: 2.250000E+00 | fr: 4.000000E+00 |");
  EXPECT_EQ(line.take_by_source(), "") << "starts again";
}

// A term may have no targets in a step: its mean is over the steps that had some.
TEST(LogLine, AveragesEachLossOverTheStepsThatHadIt) {
  LogLine line;
  StepReport report = step_report();
  report.losses = {{.name = "lm loss", .value = 2, .by_source = {}},
                   {.name = "sop loss", .value = 0.5, .by_source = {}}};
  line.add(report);
  report.losses = {{.name = "sop loss", .value = 0.25, .by_source = {}}};
  line.add(report);
  const std::string text = line.take();
  EXPECT_NE(text.find(" lm loss: 2.000000E+00 | sop loss: 3.750000E-01 |"), std::string::npos) << text;
}

TEST(LogLine, LossesByDataSetNameEveryLossAfterTheFirst) {
  StepReport report;
  report.losses = {{.name = "lm loss", .value = 3, .by_source = {{"de", 2.0, 300}, {"fr", 4.0, 100}}},
                   {.name = "sop loss", .value = 0.5, .by_source = {{"de", 0.25, 3}, {"fr", 0.75, 1}}}};
  LogLine line;
  line.add(report);
  EXPECT_EQ(line.take_by_source(),
            " loss by data set | de: 2.000000E+00 | de sop loss: 2.500000E-01 | fr: 4.000000E+00 | fr sop loss: "
            "7.500000E-01 |");
  for (NamedLoss& loss : report.losses) loss.by_source.pop_back();
  line.add(report);
  EXPECT_EQ(line.take_by_source(), "") << "of one data set";
}

TEST(EvaluationBlock, IsMegatrons) {
  const std::string rule(90, '-');
  EXPECT_EQ(
      evaluation_block("valid", "iteration 1000", {{.name = "lm loss", .value = 2.3, .by_source = {}}}),
      rule + "\nvalid loss at iteration 1000 | lm loss value: 2.300000E+00 | lm loss PPL: 9.974182E+00 | \n" + rule);
}

TEST(EvaluationBlock, CutsThePerplexityAtALossOfTwenty) {
  const std::string block = evaluation_block("valid", "the end of training for val data",
                                             {{.name = "lm loss", .value = 31.0, .by_source = {}}});
  EXPECT_NE(block.find("valid loss at the end of training for val data | lm loss value: 3.100000E+01 | lm loss PPL: "
                       "4.851652E+08 | "),
            std::string::npos)
      << block;
}

TEST(EvaluationBlock, HasNoPerplexityOfALossThatIsNoNumber) {
  EXPECT_TRUE(std::isnan(perplexity(std::nan(""))));
  EXPECT_EQ(perplexity(0.0), 1.0);
}

}  // namespace log_line_test
}  // namespace espalier::report
