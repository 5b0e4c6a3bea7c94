// The planner's count of bytes against a real run on the CPU: what every op keeps for its backward, one by one, and the
// tensor allocator's peak.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "base/cpu_isa.h"
#include "base/format.h"
#include "families/gpt/config.h"
#include "plan/memory.h"
#include "tensor/cpu_allocator.h"
#include "tensor/saved.h"
#include "tests/e2e/run_fixture.h"
#include "tests/support/long_version.h"

namespace espalier::test {
namespace memory_test {

// Activations and parameters of about the same size, and nearly all of it in blocks that the allocator counts (256 KiB
// and more).
const char* const kShape =
    " --num-layers 3 --hidden-size 256 --num-attention-heads 4 --seq-length 256 --max-position-embeddings 256"
    " --micro-batch-size 4 --num-threads 2";
const char* const kOneStep =
    " --global-batch-size 8 --train-samples 8 --lr-decay-samples 16 --lr-warmup-samples 4 --eval-iters 0";

config::RunConfig resolved(const Words& words) {
  config::RunConfig config;
  OptionTable table("espalier train gpt", "");
  Problems problems;
  config::read_run(families::gpt_family(), words, config, table, problems);
  problems.raise();
  config::set_vocabulary(config, 5000);
  return config;
}

class Memory : public testing::Test {
 protected:
  void SetUp() override { write_token_files(folder_ / "data", 600, 5); }
  Words words(const std::string& flags) const { return tiny_run(folder_ / "data") + split_blanks(kOneStep + flags); }

  TemporaryFolder folder_;
};

// Groups of 2 query heads, gated MLPs, rotary positions, norms of heads, no biases.
const char* const kLlama =
    " --position-embedding-type rotary --normalization rmsnorm --swiglu --disable-bias-linear --qk-layernorm"
    " --untie-embeddings-and-output-weights";

TEST_F(Memory, OpsKeepWhatThePlanLists) {
  const std::string llama = concat(kLlama, " --num-key-value-heads 1 --ffn-hidden-size 40");
  const std::string recomputed = llama + " --bf16 --checkpoint-activations";
  for (const std::string& flags : std::vector<std::string>{
           "", llama, recomputed, " --bf16", " --bf16 --position-embedding-type absolute --hidden-dropout 0",
           " --checkpoint-activations", " --recompute-granularity full --recompute-method block",
           " --bf16 --fp32-residual-connection", recomputed + " --fp32-residual-connection",
           " --bf16 --fp8-format hybrid", recomputed + " --fp8-format e4m3"}) {
    const config::RunConfig config = resolved(words(flags));
    const auto expected = [&] {
      const plan::RunShape run = config::run_shape(config);
      return plan::part_activations(run, plan::make_partition(run), 0, 0, products_here(config.training.precision))
          .saved;
    }();
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
      train(words(flags));
    }
    ASSERT_EQ(kept.size(), expected.size()) << flags;
    for (size_t i = 0; i < kept.size(); ++i) {
      const std::string where = concat(flags, ": tensor ", i, ", ", kept[i].op, ".", kept[i].name);
      EXPECT_EQ(kept[i].op + "." + kept[i].name, expected[i].op + "." + expected[i].name) << where;
      EXPECT_EQ(kept[i].bytes, expected[i].bytes) << where;
      EXPECT_EQ(kept[i].again, expected[i].again) << where;
    }
  }
}

TEST_F(Memory, PlanIsWithinFivePercentOfTheAllocatorsPeak) {
  tensor::install_cpu_allocator();
  const std::string llama = concat(kLlama, " --num-key-value-heads 2 --ffn-hidden-size 704 --bf16");
  std::vector<std::string> list = {
      "",
      llama,
      " --hidden-dropout 0 --attention-dropout 0",
      " --checkpoint-activations --checkpoint-num-layers 2",
      " --micro-batch-size 8",
      " --bf16 --num-layers 6 --recompute-granularity full --recompute-method block --recompute-num-layers 3",
      " --fp16 --initial-loss-scale 1024",
      " --bf16 --fp32-residual-connection",
      llama + " --fp8-format hybrid",
      " --bf16 --fp8-format e4m3 --checkpoint-activations"};
  // Each option is above; here are more of what they may come with.
  if (long_version())
    list.insert(list.end(), {" --bf16", " --bf16 --checkpoint-activations",
                             " --bf16 --fp32-residual-connection --hidden-dropout 0 --checkpoint-activations",
                             " --bf16 --fp8-format hybrid"});
  for (const std::string& flags : list) {
    const Words run = words(kShape + flags);
    const config::RunConfig config = resolved(run);
    const plan::RunShape shape = config::run_shape(config);
    const plan::MemoryPlan plan =
        plan::plan_memory(shape, plan::make_partition(shape), products_here(config.training.precision));
    const double planned = plan.largest().peak();
    tensor::reset_peak_cpu_memory();
    const double before = static_cast<double>(tensor::cpu_memory().bytes_in_use);
    train(run);
    const double measured = static_cast<double>(tensor::cpu_memory().peak_bytes_in_use) - before;
    std::printf("%-110s planned %s, allocator %s (%+.1f%%)\n", flags.c_str(), format_bytes(planned).c_str(),
                format_bytes(measured).c_str(), 100 * (planned / measured - 1));
    EXPECT_NEAR(planned, measured, 0.05 * measured) << flags;
  }
}

}  // namespace memory_test
}  // namespace espalier::test
