// --fp32-residual-connection: which tensors are fp32, the training of one process in every kind of layout, and the same
// bits after a stop.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "families/gpt/config.h"
#include "tensor/observe.h"
#include "tests/parallel/parity_runs.h"

namespace espalier::test {
namespace parallel_fp32_residual_test {

class ParallelFp32Residual : public ::testing::Test {
 protected:
  ParallelFp32Residual() { write_token_files(folder_ / "text", 300, 11); }

  Words flags(const std::string& more) const {
    return tiny_run(folder_ / "text") +
           split_blanks(
               "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32"
               " --make-vocab-size-divisible-by 1 --pad-vocab-size-to 5003 --micro-batch-size 1 --global-batch-size 8"
               " --train-samples 32 --lr-decay-samples 32 --num-threads 1 --hidden-dropout 0.1 ") +
           split_blanks(more);
  }

  TemporaryFolder folder_;
};

struct Types : tensor::TensorObserver {
  void see(const std::string& operation, const at::Tensor& values, const tensor::ObservedPlace& place) override {
    if (place.pass != tensor::Pass::kGradient) found[operation].insert(values.scalar_type());
  }
  std::map<std::string, std::set<at::ScalarType>> found;
};

// Of what is computed, and of the gradients that come back.
TEST_F(ParallelFp32Residual, TheStreamAloneIsFp32) {
  Types types;
  tensor::set_observer(&types);
  train(flags("--bf16 --fp32-residual-connection --save-interval 1000 --eval-iters 0"));
  tensor::set_observer(nullptr);
  ASSERT_GE(types.found.size(), 4U * 8);
  std::set<std::string> wide = {"embedding", "loss of each token"};
  for (const std::string layer : {"layers.0.", "layers.1.", "layers.2.", "layers.3."})
    wide.insert({layer + "self_attention", layer + "mlp"});
  for (const auto& [operation, found] : types.found)
    EXPECT_EQ(found, std::set<at::ScalarType>{wide.erase(operation) > 0 ? at::kFloat : at::kBFloat16}) << operation;
  EXPECT_EQ(wide, std::set<std::string>());
}

// Steps in bf16: where products are not divided only sums of gradients have another order, elsewhere every product is
// rounded in parts.
TEST_F(ParallelFp32Residual, TrainsTheModelOfOneProcess) {
  for (const std::string norm : {"", "--normalization rmsnorm --swiglu --disable-bias-linear "}) {
    const Words words = flags(norm + "--bf16 --fp32-residual-connection");
    const train::ParityRun one = parity_run(families::gpt_family(), words, "tp1");
    ASSERT_EQ(one.losses.size(), static_cast<size_t>(kParitySteps));
    for (const std::string layout : {"pp2", "pp2dp2zb", "dp2zero1", "dp2zero3", "tp2", "tp4sp", "cp2", "tp2pp2sp"}) {
      SCOPED_TRACE(norm + layout);
      const bool divides_products = layout.find("tp") != std::string::npos || layout.find("cp") != std::string::npos;
      const train::ParityComparison found = compare(parity_run(families::gpt_family(), words, layout), one);
      std::printf("%-12s first loss %.1e, losses %.1e\n", layout.c_str(), found.first_loss, found.largest_loss);
      EXPECT_TRUE(found.weights_equal && found.samples_equal);
      EXPECT_EQ(found.num_replica_differences, 0u);
      EXPECT_LE(found.first_loss, divides_products ? 1e-5 : 1e-8);
      EXPECT_LE(found.largest_loss, divides_products ? 1e-4 : 1e-7);
    }
  }
}

TEST_F(ParallelFp32Residual, StoppedAndResumedHasTheSameBits) {
  const auto run = [&](const std::string& save, const Words& more) {
    const plan::Layout layout = plan::parse_layout("tp2pp2");
    const Words words = flags("--fp32-residual-connection --bf16 --save-interval 1000 --eval-iters 0") +
                        plan::layout_flags(layout, 4) + Words{"--save", folder_ / save} + more;
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    });
  };
  run("straight", {});
  run("stopped", {"--exit-interval", "2"});
  run("stopped", {"--load", folder_ / "stopped"});
  EXPECT_EQ(different_tensors(folder_ / "straight/step_00000004", folder_ / "stopped/step_00000004"), Words());
}

}  // namespace parallel_fp32_residual_test
}  // namespace espalier::test
