// Every optimizer in every kind of layout: the same training as one process, the same bits on resume, and checkpoints
// from one layout to another.
#include <cmath>
#include <fstream>

#include "families/gpt/config.h"
#include "tests/parallel/parity_runs.h"
#include "tests/support/long_version.h"

namespace espalier::test {
namespace {

struct OptimizerChoice {
  const char* name;
  const char* flags;
};
void PrintTo(const OptimizerChoice& value, std::ostream* out) { *out << value.name; }

constexpr OptimizerChoice kOptimizers[] = {
    {"sgd", "--optimizer sgd --lr 0.1"},
    {"sgd_without_momentum", "--optimizer sgd --sgd-momentum 0 --lr 0.1"},
    {"lion", "--optimizer lion --lr 1e-4"},
    {"lamb", "--optimizer lamb --lr 1e-3"},
    {"adopt", "--optimizer adopt --lr 1e-3 --adam-beta2 0.9999 --adam-eps 1e-6"},
    {"adamwschedulefree", "--optimizer adamwschedulefree --lr 1e-3 --lr-decay-style constant"},
    {"adam_mup", "--mup --mup-base-hidden-size 8 --mup-embedding-mult 3 --mup-base-head-dim 2 --lr 1e-3"},
    {"adam_bf16_moments", "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --lr 1e-3"},
    {"adam8bit", "--optimizer adam8bit --hidden-size 64 --lr 1e-3"},
    {"muon", "--optimizer muon --lr 1e-3 --muon-extra-scale-factor 0.2"},
    {"muonclip", "--optimizer muonclip --qk-clip-threshold 0.02 --lr 1e-3 --muon-extra-scale-factor 0.2"},
    {"sophiag", "--optimizer sophiag --sophiag-update-interval 2 --lr 1e-3"},
    {"sgdschedulefree", "--optimizer sgdschedulefree --lr 0.1 --lr-decay-style constant"},
};

class OptimizerLayouts : public ::testing::TestWithParam<OptimizerChoice> {
 protected:
  OptimizerLayouts() { write_token_files(folder_ / "data", 300, 11); }

  Words run_flags() const {
    return tiny_run(folder_ / "data") +
           split_blanks(
               "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32"
               " --make-vocab-size-divisible-by 1 --pad-vocab-size-to 5003 --micro-batch-size 1 --num-threads 1"
               " --global-batch-size 8 --train-samples 64 --lr-decay-samples 64 --eval-iters 0 --log-level error") +
           split_blanks(GetParam().flags);
  }
  void run(const std::string& layout_text, const std::string& save, const Words& more) const {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words =
        run_flags() + plan::layout_flags(layout, 4) + Words{"--save", folder_ / save, "--save-interval", "1000"} + more;
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    });
  }

  TemporaryFolder folder_;
};

TEST_P(OptimizerLayouts, TrainTheSameModelAsOneProcess) {
  const auto run = [&](const char* layout) { return parity_run(families::gpt_family(), run_flags(), layout); };
  const train::ParityRun one = run("tp1");
  ASSERT_EQ(one.losses.size(), static_cast<size_t>(kParitySteps));
  // Tensor ranks, stages and shares of the state at once; shares of everything; parts of a sequence.
  const std::vector<const char*> in_suite = {"tp2pp2dp2zero1", "dp2zero3", "cp2"},
                                 all = {"tp2",      "tp2sp",    "pp2", "dp2",           "dp2zero1",
                                        "dp2zero2", "dp2zero3", "cp2", "tp2pp2dp2zero1"};
  for (const char* layout : in_suite_or_all(in_suite, all)) expect_same_training(layout, run(layout), one);
}

TEST_P(OptimizerLayouts, ResumeToTheBit) {
  const std::vector<const char*> in_suite = {"tp2dp2zero1", "dp2zero3"}, all = {"tp1", "tp2dp2zero1", "dp2zero3"};
  for (const char* layout : in_suite_or_all(in_suite, all)) {
    SCOPED_TRACE(layout);
    const std::string straight = concat(layout, "/straight"), stopped = concat(layout, "/stopped");
    run(layout, straight, {"--bf16"});
    run(layout, stopped, {"--bf16", "--exit-interval", "5"});
    run(layout, stopped, {"--bf16", "--load", folder_ / stopped});
    EXPECT_EQ(different_tensors(folder_ / (straight + "/step_00000008"), folder_ / (stopped + "/step_00000008")),
              Words());
  }
}

TEST_P(OptimizerLayouts, GoOnInAnotherLayout) {
  run("tp1", "one", {});
  run("tp2pp2", "many", {"--exit-interval", "3"});
  run("dp2zero2", "many", {"--load", folder_ / "many", "--exit-interval", "6"});
  run("tp2sp", "many", {"--load", folder_ / "many"});
  const auto one = step_records(folder_ / "one"), many = step_records(folder_ / "many");
  ASSERT_EQ(one.size(), 8u);
  ASSERT_EQ(many.size(), one.size());
  for (size_t step = 0; step < one.size(); ++step)
    EXPECT_NEAR(many[step].at("lm_loss").get<double>() / one[step].at("lm_loss").get<double>(), 1, 1e-6)
        << "step " << step + 1;
}

INSTANTIATE_TEST_SUITE_P(, OptimizerLayouts, ::testing::ValuesIn(kOptimizers),
                         [](const auto& info) { return std::string(info.param.name); });

double last_evaluation(const std::string& run_folder) {
  std::ifstream file(run_folder + "/metrics.jsonl");
  double loss = 0;
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains("valid")) loss = record.at("valid").begin()->at("lm_loss");
  }
  return loss;
}

// A run changes the types of its moments where it says so; what it goes on with is that state, rounded.
TEST(MomentTypes, ChangeWithinARunThatSaysSo) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 300, 1);
  const auto run = [&](const char* layout_text, const std::string& save, const std::string& flags) {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words = tiny_run(folder / "data") +
                        split_blanks(
                            "--hidden-size 64 --num-attention-heads 4 --num-threads 1 --lr 1e-3 --bf16 "
                            "--save-interval 100 --log-level error ") +
                        split_blanks(flags) + plan::layout_flags(layout, 4) + Words{"--save", folder / save};
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    });
  };
  const auto losses = [&](const std::string& save) {
    std::vector<double> found;
    for (const auto& record : step_records(folder / save)) found.push_back(record.at("lm_loss").get<double>());
    return found;
  };
  run("tp1", "wide", "");
  run("tp2dp2zero1", "narrow", "--exit-interval 4");
  const std::string go_on = "--optimizer adam8bit --load " + (folder / "narrow");
  EXPECT_THROW(run("tp1", "narrow", go_on), UserError);
  run("dp2zero2", "narrow", go_on + " --override optimizer --exit-interval 6");
  run("tp2", "narrow",
      "--exp-avg-sq-dtype bf16 --load " + (folder / "narrow") + " --override optimizer exp_avg_sq_dtype");
  const std::vector<double> wide = losses("wide"), narrow = losses("narrow");
  ASSERT_EQ(wide.size(), narrow.size());
  for (size_t step = 0; step < wide.size(); ++step) EXPECT_NEAR(narrow[step] / wide[step], 1, 3e-3) << step + 1;
}

// Moments in fp8 that tensor ranks would cut are no more readable for a run that keeps another type.
TEST(MomentTypes, InBlocksThatALayoutCutsAreRefused) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 1);
  const auto message = [&](const char* layout_text, const std::string& flags) {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words = tiny_run(folder / "data") +
                        split_blanks(
                            "--hidden-size 64 --num-attention-heads 4 --num-threads 1 --lr 1e-3 --bf16 "
                            "--save-interval 100 --log-level error ") +
                        split_blanks(flags) + plan::layout_flags(layout, 4) + Words{"--save", folder / "run"};
    return dist::run_ranks(layout.grid,
                           [&](const dist::Grid& grid) {
                             try {
                               train(words, grid);
                               return std::string();
                             } catch (const UserError& error) {
                               return std::string(error.what());
                             }
                           })
        .front();
  };
  EXPECT_EQ(message("tp2", "--optimizer adam8bit --exit-interval 3"), "");
  const std::string go_on =
      "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --override optimizer exp_avg_dtype exp_avg_sq_dtype --load " +
      (folder / "run");
  const std::string refused = message("tp4", go_on);
  EXPECT_NE(refused.find("--tensor-model-parallel-size 4 cuts the rows of layers.0.self_attention.dense.weight within "
                         "such a block. Use a tensor-parallel size of 2"),
            std::string::npos)
      << refused;
  EXPECT_EQ(message("dp2zero1", go_on), "");
}

// The steps are too small to change logits by themselves; samples differ from step to step.
TEST(QkClipRuns, BringLogitsDownAndSayHowLargeTheyWere) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 1);
  const auto logits = [&](const std::string& save, const Words& more) {
    dist::run_ranks(plan::parse_layout("tp2").grid, [&](const dist::Grid& grid) {
      train(tiny_run(folder / "data") + plan::layout_flags(plan::parse_layout("tp2"), 2) +
                Words{"--num-threads", "1", "--num-attention-heads", "4", "--lr", "1e-7", "--min-lr", "0",
                      "--save-interval", "100", "--save", folder / save} +
                more,
            grid);
      return std::string();
    });
    std::vector<double> found;
    for (const auto& record : step_records(folder / save)) found.push_back(record.value("max_attention_logit", -1.0));
    return found;
  };
  const std::vector<double> clipped = logits("clipped", {"--qk-clip", "--qk-clip-threshold", "1e-3"}),
                            watched = logits("watched", {"--qk-clip"}), off = logits("off", {});
  EXPECT_EQ(clipped.front(), watched.front());
  EXPECT_GT(watched.back(), 0.5 * watched.front());
  EXPECT_LT(clipped.back(), 2e-3);
  EXPECT_GT(clipped.front(), 1e-2);
  EXPECT_EQ(off.front(), -1);
}

// Evaluations take the mean, as whatever reads the checkpoint does, and leave the run as it was.
TEST(ScheduleFree, EvaluationsTakeTheMeanThatCheckpointsHold) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 1);
  const Words common =
      tiny_run(folder / "data") +
      Words{"--num-threads", "1", "--save-interval", "100", "--bf16", "--lr-decay-style", "constant", "--lr", "1e-2"};
  const auto run = [&](const char* layout_text, const std::string& save, const Words& more) {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words = common + plan::layout_flags(layout, 2) + Words{"--save", folder / save} + more;
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    });
  };
  const Words optimizer = {"--optimizer", "adamwschedulefree"};
  for (const char* layout : {"tp1", "dp2zero1", "dp2zero3"}) {
    SCOPED_TRACE(layout);
    const std::string often = concat(layout, "/often"), once = concat(layout, "/once"),
                      found = concat(layout, "/found");
    run(layout, often, optimizer + Words{"--eval-interval", "3"});
    run(layout, once, optimizer);  // at the end
    EXPECT_EQ(different_tensors(folder / (often + "/step_00000010"), folder / (once + "/step_00000010")), Words());
    run(layout, found, {"--eval-only", "yes", "--load", folder / once});
    EXPECT_GT(last_evaluation(folder / once), 1);
    EXPECT_EQ(last_evaluation(folder / found), last_evaluation(folder / once));
  }
}

}  // namespace
}  // namespace espalier::test
