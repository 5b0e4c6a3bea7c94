// Runs of a BERT on one process: a falling loss, the bits of a run that was stopped, and the planner's bytes.
#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu_isa.h"
#include "base/format.h"
#include "families/bert/config.h"
#include "plan/memory.h"
#include "tensor/cpu_allocator.h"
#include "tests/e2e/run_fixture.h"
#include "tests/support/long_version.h"

namespace espalier::test {
namespace bert_run_test {

void train_bert(const Words& words) { train(words, dist::single_process(), families::bert_family()); }

struct BertCase {
  const char* name;
  Words flags;
};
void PrintTo(const BertCase& value, std::ostream* out) { *out << value.name; }

class BertRun : public ::testing::TestWithParam<BertCase> {};

// Ten steps straight, against the same ten steps with a stop after step 3, and with ESPALIER_TEST_ALL one after step 7.
TEST_P(BertRun, StoppedAndResumedEqualsStraightBitForBit) {
  const TemporaryFolder folder;
  write_sentence_files(folder / "data", 200, 5);
  const Words run = tiny_bert_run(folder / "data") + GetParam().flags + Words{"--save-interval", "1000"};
  train_bert(run + Words{"--save", folder / "straight"});
  for (const std::string& stop : in_suite_or_all(Words{"3", "100"}, Words{"3", "7", "100"}))
    train_bert(run + Words{"--save", folder / "stopped", "--load", folder / "stopped", "--exit-interval", stop});
  const auto straight = step_records(folder / "straight"), stopped = step_records(folder / "stopped");
  ASSERT_EQ(straight.size(), 10u);
  EXPECT_EQ(stopped, straight);
  EXPECT_LT(straight.back().at("lm_loss").get<double>(), straight.front().at("lm_loss").get<double>());
  EXPECT_EQ(straight.back().contains("sop_loss"), std::string(GetParam().name) != "no_binary_head");
  EXPECT_EQ(different_tensors(folder / "straight/step_00000010", folder / "stopped/step_00000010"), Words{});
}

std::vector<BertCase> bert_cases() {
  std::vector<BertCase> cases = {
      {"fp32", {}},
      {"bf16", {"--bf16"}},
      {"no_binary_head", {"--bert-no-binary-head"}},
      {"recompute_micro_batch_means",
       {"--checkpoint-activations", "--loss-average", "micro-batch", "--apply-residual-connection-post-layernorm"}}};
  // What is of fp16, the scale of the loss, is no family's own: resume_test.cpp has it.
  if (long_version()) cases.push_back({"fp16", {"--fp16", "--initial-loss-scale", "65536"}});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Kinds, BertRun, ::testing::ValuesIn(bert_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// Samples have different numbers of tokens to predict; each of these tokens counts the same, however they are divided.
TEST(BertLosses, MicroBatchesOfAnySizeGiveTheSameMeansAndGradients) {
  const TemporaryFolder folder;
  write_sentence_files(folder / "data", 200, 5);
  const auto records = [&](const char* micro_batch_size, const char* average) {
    const std::string save = folder / concat("run", micro_batch_size, average);
    train_bert(tiny_bert_run(folder / "data") + Words{"--micro-batch-size", micro_batch_size, "--loss-average", average,
                                                      "--short-seq-prob", "0.5", "--save", save, "--save-interval",
                                                      "1000"});
    return step_records(save);
  };
  const auto apart = [](const nlohmann::json& a, const nlohmann::json& b, const char* key) {
    return std::abs(a.at(key).get<double>() / b.at(key).get<double>() - 1);
  };
  const auto whole = records("8", "token"), single = records("1", "token"), means = records("1", "micro-batch");
  ASSERT_EQ(whole.size(), 10u);
  double means_apart = 0;
  for (size_t step = 0; step < whole.size(); ++step) {
    for (const char* key : {"lm_loss", "sop_loss", "grad_norm"})
      EXPECT_LE(apart(single[step], whole[step], key), 1e-5) << key << " of step " << step + 1;
    means_apart = std::max(means_apart, apart(means[step], whole[step], "lm_loss"));
  }
  EXPECT_GT(means_apart, 1e-4) << "means of micro-batches weigh short ones more";
}

// Activations and parameters of about the same size, and nearly all of it in blocks that the allocator counts.
const char* const kLarge =
    " --num-layers 3 --hidden-size 256 --num-attention-heads 4 --seq-length 256 --max-position-embeddings 256"
    " --micro-batch-size 4 --num-threads 2 --make-vocab-size-divisible-by 1 --pad-vocab-size-to 5000"
    " --global-batch-size 8 --train-samples 8 --lr-decay-samples 16 --lr-warmup-samples 4 --eval-iters 0";

TEST(BertMemory, PlanIsWithinFivePercentOfTheAllocatorsPeak) {
  const TemporaryFolder folder;
  write_sentence_files(folder / "data", 600, 5);
  tensor::install_cpu_allocator();
  std::vector<std::string> list = {"", " --bert-no-binary-head --bert-num-tokentypes 7",
                                   " --bf16 --checkpoint-activations", " --hidden-dropout 0 --attention-dropout 0",
                                   " --fp16 --initial-loss-scale 1024"};
  // Each option of the family is above; here are more of what they may come with.
  if (long_version())
    list.insert(list.end(),
                {" --bf16", " --bert-no-binary-head", " --checkpoint-activations", " --micro-batch-size 8"});
  for (const std::string& flags : list) {
    const Words run = tiny_bert_run(folder / "data") + split_blanks(kLarge + flags);
    ParsedRun parsed(run, dist::single_process(), families::bert_family());
    config::set_vocabulary(parsed.config, 322);
    const plan::RunShape shape = config::run_shape(parsed.config);
    const double planned =
        plan::plan_memory(shape, plan::make_partition(shape), products_here(shape.precision)).largest().peak();
    tensor::reset_peak_cpu_memory();
    const double before = static_cast<double>(tensor::cpu_memory().bytes_in_use);
    train_bert(run);
    const double measured = static_cast<double>(tensor::cpu_memory().peak_bytes_in_use) - before;
    std::printf("%-50s planned %s, allocator %s (%+.1f%%)\n", flags.c_str(), format_bytes(planned).c_str(),
                format_bytes(measured).c_str(), 100 * (planned / measured - 1));
    EXPECT_NEAR(planned, measured, 0.05 * measured) << flags;
  }
}

}  // namespace bert_run_test
}  // namespace espalier::test
