// --ema in every kind of layout: the average of the weights that checkpoints hold, the same bits after a stop, any
// checkpoint in any layout, and evaluations that take it and leave the run as it was.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ckpt/loader.h"
#include "store/run_folder.h"
#include "tests/parallel/parity_runs.h"

namespace espalier::test {
namespace parallel_ema_test {

constexpr double kDecay = 0.75;

class ParallelEma : public ::testing::Test {
 protected:
  ParallelEma() { write_token_files(folder_ / "text", 300, 11); }

  void run(const std::string& layout_text, const std::string& save, const std::string& flags, const Words& more = {}) {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words =
        tiny_run(folder_ / "text") +
        split_blanks(
            "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 36 --max-position-embeddings 36"
            " --make-vocab-size-divisible-by 1 --pad-vocab-size-to 5003 --micro-batch-size 1 --global-batch-size 8"
            " --train-samples 48 --lr-decay-samples 48 --lr 1e-2 --num-threads 1 --eval-iters 2 --log-level error ") +
        split_blanks(flags) + plan::layout_flags(layout, 4) + Words{"--save", folder_ / save} + more;
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    });
  }
  std::string step(const std::string& run, int64_t number) const {
    return folder_ / (run + "/" + store::step_folder_name(number));
  }
  // From the first step on, of every step of a run: what a plain loop in double makes of the weights.
  void expect_averages(const std::string& run) const {
    std::map<std::string, at::Tensor> expected;
    for (int64_t number = 1; number <= 6; ++number) {
      ckpt::LoadedCheckpoint checkpoint(step(run, number));
      for (const store::StoredTensor& tensor : checkpoint.manifest().tensors) {
        if (!store::is_weight(tensor)) continue;
        const std::string master = tensor.name + ".master";
        const at::Tensor weight = checkpoint.read(checkpoint.has(master) ? master : tensor.name).to(at::kDouble);
        const at::Tensor found = checkpoint.read(tensor.name + ".ema").to(at::kDouble);
        at::Tensor& average = expected[tensor.name];
        if (number == 1) {
          average = found.clone();
          continue;
        }
        for (int64_t at = 0; at < average.numel(); ++at)
          average.mutable_data_ptr<double>()[at] =
              kDecay * average.const_data_ptr<double>()[at] + (1 - kDecay) * weight.const_data_ptr<double>()[at];
        EXPECT_LE((found - average).norm().item<double>(), 1e-6 * average.norm().item<double>())
            << run << ", step " << number << ", " << tensor.name;
        EXPECT_TRUE(number < 6 || !at::equal(found, weight)) << tensor.name;
      }
    }
    EXPECT_GT(expected.size(), 10u);
  }
  double last_evaluation(const std::string& run) const {
    std::ifstream file(folder_ / (run + "/metrics.jsonl"));
    double loss = 0;
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record.contains("valid")) loss = record.at("valid").begin()->at("lm_loss");
    }
    return loss;
  }

  TemporaryFolder folder_;
};

TEST_F(ParallelEma, IsTheAverageOfTheWeightsInEveryLayout) {
  for (const std::string layout : {"tp1", "tp2sp", "pp2", "dp2zero1", "dp2zero2", "dp2zero3", "cp2", "tp2pp2dp2zero1"})
    for (const std::string flags : {"", "--bf16 "}) {
      if (flags.empty() == (layout == "pp2" || layout == "dp2zero2")) continue;  // each type in some of them
      run(layout, layout + flags, flags + "--ema 0.75 --save-interval 1");
      expect_averages(layout + flags);
    }
  for (const char* optimizer : {"muon", "lamb", "sgd"}) {
    run("dp2zero2", optimizer, concat("--ema 0.75 --save-interval 1 --optimizer ", optimizer));
    expect_averages(optimizer);
  }
}

TEST_F(ParallelEma, LeavesTheTrainingAsItIs) {
  run("dp2zero1", "with", "--bf16 --ema 0.75 --eval-ema --eval-interval 2 --save-interval 100");
  run("dp2zero1", "without", "--bf16 --save-interval 100");
  ckpt::LoadedCheckpoint with(step("with", 6)), without(step("without", 6));
  for (const store::StoredTensor& tensor : without.manifest().tensors)
    EXPECT_TRUE(at::equal(with.read(tensor.name), without.read(tensor.name))) << tensor.name;
}

TEST_F(ParallelEma, StoppedAndResumedHasTheSameBits) {
  for (const std::string layout : {"tp1", "tp2dp2zero1", "dp2zero3"}) {
    const std::string flags = "--bf16 --ema 0.75 --save-interval 100 --eval-ema --eval-interval 2 ";
    run(layout, layout + "straight", flags);
    run(layout, layout + "stopped", flags, {"--exit-interval", "4"});
    run(layout, layout + "stopped", flags, {"--load", folder_ / (layout + "stopped")});
    EXPECT_EQ(different_tensors(step(layout + "straight", 6), step(layout + "stopped", 6)), Words());
  }
}

TEST_F(ParallelEma, GoesOnFromAnyLayoutInAnyOther) {
  const std::string flags = "--ema 0.75 --save-interval 1 ";
  run("tp2pp2", "many", flags, {"--exit-interval", "2"});
  run("dp2zero3", "many", flags, {"--load", folder_ / "many", "--exit-interval", "4"});
  run("tp2sp", "many", flags, {"--load", folder_ / "many"});
  expect_averages("many");
}

// In fp32 weights and average change places to be evaluated, in bf16 there is a master to go back to.
TEST_F(ParallelEma, IsWhatEvaluationsTakeThatAskForIt) {
  for (const std::string layout : {"tp1", "dp2zero1", "dp2zero3"})
    for (const std::string type : {"", "--bf16 "}) {
      SCOPED_TRACE(layout + type);
      const std::string flags = type + "--save-interval 100 ", name = layout + type;
      run(layout, "often" + name, flags + "--ema 0.9 --eval-ema --eval-interval 2");
      run(layout, "ema" + name, flags + "--ema 0.9 --eval-ema");  // at the end
      run(layout, "own" + name, flags + "--ema 0.9");
      EXPECT_EQ(different_tensors(step("often" + name, 6), step("own" + name, 6)), Words());
      EXPECT_EQ(different_tensors(step("ema" + name, 6), step("own" + name, 6)), Words());
      run("tp1", "found_ema" + name, flags + "--eval-only yes --eval-ema", {"--load", folder_ / ("often" + name)});
      run("tp1", "found_own" + name, flags + "--eval-only yes", {"--load", folder_ / ("often" + name)});
      const double ema = last_evaluation("ema" + name), own = last_evaluation("own" + name);
      EXPECT_NEAR(last_evaluation("found_ema" + name), ema, 1e-6 * ema);
      EXPECT_NEAR(last_evaluation("found_own" + name), own, 1e-6 * own);
      EXPECT_GT(std::abs(ema - own), 1e-3);
    }
}

TEST_F(ParallelEma, BeginsAndEndsWithinARunThatSaysSo) {
  for (const std::string type : {"", "--bf16 "}) {
    const std::string flags = type + "--save-interval 1 ", save = "run" + type;
    run("dp2zero1", save, flags, {"--exit-interval", "1"});
    const Words on = {"--load", folder_ / save, "--ema", "0.75"}, off = {"--load", folder_ / save};
    EXPECT_THROW(run("tp1", save, flags, on), UserError);
    run("dp2zero2", save, flags, on + Words{"--override", "ema", "--exit-interval", "3"});
    ckpt::LoadedCheckpoint first(step(save, 1)), second(step(save, 2));
    for (const store::StoredTensor& tensor : first.manifest().tensors) {
      if (!store::is_weight(tensor)) continue;
      const std::string name = first.has(tensor.name + ".master") ? tensor.name + ".master" : tensor.name;
      const at::Tensor expected =
          kDecay * first.read(name).to(at::kDouble) + (1 - kDecay) * second.read(name).to(at::kDouble);
      const at::Tensor found = second.read(tensor.name + ".ema").to(at::kDouble);
      EXPECT_LE((found - expected).norm().item<double>(), 1e-6 * expected.norm().item<double>()) << tensor.name;
    }
    EXPECT_THROW(run("tp1", save, flags, off), UserError);
    run("tp1", save, flags, off + Words{"--override", "ema"});
    for (const store::StoredTensor& tensor : store::read_manifest(step(save, 6)).tensors)
      EXPECT_FALSE(tensor.name.ends_with(".ema")) << tensor.name;
    EXPECT_THROW(run("tp1", "none", flags + "--eval-only yes --eval-ema", {"--load", folder_ / save}), UserError);
  }
}

}  // namespace parallel_ema_test
}  // namespace espalier::test
