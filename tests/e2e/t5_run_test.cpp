// Runs of a T5 on one process: a falling loss, the bits of a run that was stopped, and the planner's bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/cpu_isa.h"
#include "base/format.h"
#include "families/t5/config.h"
#include "plan/memory.h"
#include "tensor/cpu_allocator.h"
#include "tensor/saved.h"
#include "tests/e2e/run_fixture.h"
#include "tests/support/long_version.h"

namespace espalier::test {
namespace t5_run_test {

void train_t5(const Words& words) { train(words, dist::single_process(), families::t5_family()); }

struct T5Case {
  const char* name;
  const char* flags;
};
void PrintTo(const T5Case& value, std::ostream* out) { *out << value.name; }

class T5Run : public ::testing::TestWithParam<T5Case> {};

// Ten steps straight, against the same ten steps with a stop after step 3, and with ESPALIER_TEST_ALL one after step 7.
TEST_P(T5Run, StoppedAndResumedEqualsStraightBitForBit) {
  const TemporaryFolder folder;
  write_sentence_files(folder / "data", 200, 5);
  const Words run = tiny_t5_run(folder / "data") + split_blanks(GetParam().flags) + Words{"--save-interval", "1000"};
  train_t5(run + Words{"--save", folder / "straight"});
  for (const std::string& stop : in_suite_or_all(Words{"3", "100"}, Words{"3", "7", "100"}))
    train_t5(run + Words{"--save", folder / "stopped", "--load", folder / "stopped", "--exit-interval", stop});
  const auto straight = step_records(folder / "straight"), stopped = step_records(folder / "stopped");
  ASSERT_EQ(straight.size(), 10u);
  EXPECT_EQ(stopped, straight);
  EXPECT_LT(straight.back().at("lm_loss").get<double>(), straight.front().at("lm_loss").get<double>());
  EXPECT_EQ(different_tensors(folder / "straight/step_00000010", folder / "stopped/step_00000010"), Words{});
}

std::vector<T5Case> t5_cases() {
  std::vector<T5Case> cases = {{"fp32", ""},
                               {"bf16", "--bf16"},
                               {"one_decoder_layer_recomputed_micro_batch_means",
                                "--decoder-num-layers 1 --checkpoint-activations --loss-average micro-batch "
                                "--apply-residual-connection-post-layernorm"},
                               {"rms_norms_without_biases_untied_gated",
                                "--normalization rmsnorm --disable-bias-linear --untie-embeddings-and-output-weights "
                                "--activation geglu"}};
  // What is of fp16, the scale of the loss, is no family's own: resume_test.cpp has it.
  if (long_version()) cases.push_back({"fp16", "--fp16 --initial-loss-scale 65536"});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Kinds, T5Run, ::testing::ValuesIn(t5_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// Samples have different numbers of tokens to predict; each of these tokens counts the same, however they are divided.
TEST(T5Losses, MicroBatchesOfAnySizeGiveTheSameMeansAndGradients) {
  const TemporaryFolder folder;
  write_sentence_files(folder / "data", 200, 5);
  const auto records = [&](const char* micro_batch_size, const char* average) {
    const std::string save = folder / concat("run", micro_batch_size, average);
    train_t5(tiny_t5_run(folder / "data") + Words{"--micro-batch-size", micro_batch_size, "--loss-average", average,
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
    for (const char* key : {"lm_loss", "grad_norm"})
      EXPECT_LE(apart(single[step], whole[step], key), 1e-5) << key << " of step " << step + 1;
    means_apart = std::max(means_apart, apart(means[step], whole[step], "lm_loss"));
  }
  EXPECT_GT(means_apart, 1e-4) << "means of micro-batches weigh short ones more";
}

plan::RunShape t5_shape(const Words& words) {
  ParsedRun parsed(words, dist::single_process(), families::t5_family());
  config::set_vocabulary(parsed.config, kTinyT5Vocabulary);
  return config::run_shape(parsed.config);
}

const char* const kOneStep =
    " --global-batch-size 8 --train-samples 8 --lr-decay-samples 16 --lr-warmup-samples 4 --eval-iters 0 ";

// Every tensor that an op keeps for its backward, in order, with its bytes.
TEST(T5Memory, OpsKeepWhatThePlanLists) {
  const TemporaryFolder folder;
  write_sentence_files(folder / "data", 200, 5);
  for (const std::string& flags : std::vector<std::string>{
           "", "--bf16 --decoder-num-layers 3", "--bf16 --fp8-format hybrid --decoder-num-layers 3",
           "--normalization rmsnorm --disable-bias-linear --activation geglu", "--checkpoint-activations",
           "--num-layers 3 --checkpoint-activations --checkpoint-num-layers 2",
           "--num-layers 3 --recompute-granularity full --recompute-method block --recompute-num-layers 4",
           "--hidden-dropout 0 --max-position-embeddings 40 --decoder-seq-length 40"}) {
    const Words words = tiny_t5_run(folder / "data") + split_blanks(kOneStep + flags);
    const plan::RunShape shape = t5_shape(words);
    const std::vector<plan::SavedBytes> expected =
        plan::part_activations(shape, plan::make_partition(shape), 0, 0, products_here(shape.precision)).saved;
    std::vector<plan::SavedBytes> kept;
    std::set<const void*> seen;
    {
      bool first_micro_batch = true;
      const tensor::ObserveSaved observe([&](const char* op, const tensor::SavedTensor& saved) {
        if (!first_micro_batch) return;
        const bool again = saved.tensor.numel() > 0 && !seen.insert(saved.tensor.const_data_ptr()).second;
        kept.push_back({op, saved.name, static_cast<double>(saved.tensor.nbytes()), again});
        first_micro_batch = kept.back().name != "kept_logits";
      });
      train_t5(words);
    }
    EXPECT_EQ(kept.size(), expected.size()) << flags;
    for (size_t i = 0; i < std::min(kept.size(), expected.size()); ++i) {
      const std::string where = concat(flags, ": tensor ", i, ", ", kept[i].op, ".", kept[i].name);
      ASSERT_EQ(kept[i].op + "." + kept[i].name, expected[i].op + "." + expected[i].name) << where;
      EXPECT_EQ(kept[i].bytes, expected[i].bytes) << where;
      EXPECT_EQ(kept[i].again, expected[i].again) << where;
    }
  }
}

// Activations and parameters of about the same size, and nearly all of it in blocks that the allocator counts (256 KiB
// and more).
const char* const kLargeT5 =
    " --num-layers 3 --hidden-size 256 --num-attention-heads 4 --encoder-seq-length 256 --decoder-seq-length 128 "
    "--max-position-embeddings 512 --micro-batch-size 4 --num-threads 2 --make-vocab-size-divisible-by 1 "
    "--pad-vocab-size-to 5000";

TEST(T5Memory, PlanIsWithinFivePercentOfTheAllocatorsPeak) {
  const TemporaryFolder folder;
  write_sentence_files(folder / "data", 600, 5);
  tensor::install_cpu_allocator();
  const std::string block = "--recompute-granularity full --recompute-method block --recompute-num-layers ";
  std::vector<std::string> list = {
      "",
      "--hidden-dropout 0 --attention-dropout 0",
      "--fp16 --initial-loss-scale 1024",
      "--bf16 --decoder-seq-length 400",
      "--num-layers 5 --decoder-num-layers 1",
      "--num-layers 1 --decoder-num-layers 5",
      "--checkpoint-activations --checkpoint-num-layers 2",
      block + "2",
      "--bf16 " + block + "5 --decoder-seq-length 400",
      "--normalization rmsnorm --disable-bias-linear --untie-embeddings-and-output-weights --activation geglu",
      "--bf16 --apply-residual-connection-post-layernorm",
      "--micro-batch-size 8",
      "--bf16 --fp8-format hybrid"};
  // Each option is above; here are more of what they may come with.
  if (long_version())
    list.insert(list.end(),
                {"--bf16", "--decoder-seq-length 400", "--decoder-seq-length 256", "--checkpoint-activations",
                 "--bf16 --checkpoint-activations",
                 "--bf16 --checkpoint-activations --checkpoint-num-layers 4 --decoder-seq-length 400", block + "5"});
  for (const std::string& flags : list) {
    const Words run = tiny_t5_run(folder / "data") + split_blanks(concat(kLargeT5, kOneStep, flags));
    const plan::RunShape shape = t5_shape(run);
    const double planned =
        plan::plan_memory(shape, plan::make_partition(shape), products_here(shape.precision)).largest().peak();
    tensor::reset_peak_cpu_memory();
    const double before = static_cast<double>(tensor::cpu_memory().bytes_in_use);
    train_t5(run);
    const double measured = static_cast<double>(tensor::cpu_memory().peak_bytes_in_use) - before;
    std::printf("%-100s planned %s, allocator %s (%+.1f%%)\n", flags.c_str(), format_bytes(planned).c_str(),
                format_bytes(measured).c_str(), 100 * (planned / measured - 1));
    EXPECT_NEAR(planned, measured, 0.05 * measured) << flags;
  }
}

}  // namespace t5_run_test
}  // namespace espalier::test
