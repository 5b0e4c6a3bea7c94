// What a run reports, and options that must not change what is learnt.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "ckpt/loader.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::test {
namespace training_test {

// The loss of a blend is the mean of its data sets' losses, weighed by their tokens; each is listed by name.
TEST(Blend, EveryDataSetReportsItsOwnLossByName) {
  const TemporaryFolder folder;
  write_token_files(folder / "swahili", 150, 1);
  write_token_files(folder / "basque", 150, 2);
  train(tiny_run("1") + Words{"--data-path", "0.75", folder / "swahili", "0.25", folder / "basque", "--save",
                              folder / "run", "--save-interval", "100"});
  const auto records = step_records(folder / "run");
  ASSERT_EQ(records.size(), 10u);
  for (const auto& record : records) {
    const auto& by_source = record.at("lm_loss_by_data_set");
    ASSERT_TRUE(by_source.contains("swahili") && by_source.contains("basque")) << record;
    // 8 samples a step, 6 of one and 2 of the other.
    EXPECT_NEAR(record.at("lm_loss").get<double>(),
                0.75 * by_source.at("swahili").get<double>() + 0.25 * by_source.at("basque").get<double>(), 1e-5);
  }
  EXPECT_LT(records.back().at("lm_loss").get<double>(), records.front().at("lm_loss").get<double>());
}

TEST(Evaluation, NamedGroupsAreReportedByName) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 1);
  const std::string range = " " + folder / "data";
  const Words flags = without(tiny_run("unused"), {"--data-path", "--split"});
  train(flags + Words{"--train-weighted-split-paths", "train: 1 0:0.8" + range, "--valid-weighted-split-paths",
                      "near: 1 0.8:0.9" + range, "far: 1 0.9:1" + range, "--eval-interval", "5", "--save",
                      folder / "run", "--save-interval", "100"});
  std::ifstream file(folder / "run/metrics.jsonl");
  std::vector<int64_t> steps;
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    if (!record.contains("valid")) continue;
    steps.push_back(record.at("step"));
    for (const char* group : {"near", "far"}) {
      const double loss = record.at("valid").at(group).at("lm_loss");
      EXPECT_NEAR(record.at("valid").at(group).at("ppl").get<double>(), std::exp(loss), 1e-9 * std::exp(loss));
    }
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{5, 10, 10}));  // twice at the interval, once at the end
}

// What a run found at its end, a process that only evaluates finds again; options of a schedule do not matter to it.
TEST(Evaluation, AloneItFindsTheSameLossAndTrainsNothing) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 1);
  train(tiny_run(folder / "data") + Words{"--save", folder / "run", "--save-interval", "100"});
  train(tiny_run(folder / "data") + Words{"--load", folder / "run", "--save", folder / "found", "--eval-only", "yes",
                                          "--save-interval", "100", "--lr", "1e-2", "--lr-warmup-samples", "0"});
  const auto last_evaluation = [&](const std::string& run) {
    std::ifstream file(folder / (run + "/metrics.jsonl"));
    double loss = 0;
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record.contains("valid")) loss = record.at("valid").begin()->at("lm_loss");
    }
    return loss;
  };
  EXPECT_GT(last_evaluation("run"), 1);
  EXPECT_EQ(last_evaluation("found"), last_evaluation("run"));
  EXPECT_TRUE(step_records(folder / "found").empty());
  EXPECT_FALSE(std::filesystem::exists(folder / "found/step_00000010"));
}

// Argonne's --adjust-word-embedding-init: of 5120 * 24 drawn weights the standard deviation is known within 1 %.
TEST(WordEmbedding, IsDrawnWithItsOwnStandardDeviation) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  train(tiny_run(folder / "data") + Words{"--save", folder / "run", "--save-interval", "1", "--exit-interval", "1",
                                          "--lr", "1e-12", "--min-lr", "0", "--adjust-word-embedding-init",
                                          "--word-embedding-init-std", "0.632455532"});
  ckpt::LoadedCheckpoint saved(folder / "run/step_00000001");
  EXPECT_NEAR(saved.read("word_embeddings.weight").std().item<double>(), 0.6325, 0.0063);
  EXPECT_NEAR(saved.read("layers.0.mlp.dense_h_to_4h.weight").std().item<double>(), 0.02, 0.002);
}

// Every matrix within sqrt(6 / (rows + columns)), and close to that bound: of n values the largest is above the bound
// times 1 - 20 / n but for one case in e^10.
TEST(XavierUniform, BoundsFollowTheShapes) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  train(tiny_run(folder / "data") + Words{"--save", folder / "run", "--save-interval", "1", "--exit-interval", "1",
                                          "--lr", "1e-12", "--min-lr", "0", "--init-method-xavier-uniform"});
  ckpt::LoadedCheckpoint saved(folder / "run/step_00000001");
  for (const char* name : {"word_embeddings.weight", "layers.0.self_attention.query_key_value.weight",
                           "layers.0.mlp.dense_h_to_4h.weight", "layers.1.mlp.dense_4h_to_h.weight"}) {
    const at::Tensor values = saved.read(name);
    const double bound = std::sqrt(6.0 / static_cast<double>(values.size(0) + values.size(1)));
    const double largest = values.abs().max().item<double>();
    EXPECT_LE(largest, bound * (1 + 1e-6)) << name;
    EXPECT_GE(largest, bound * (1 - 20.0 / static_cast<double>(values.numel()))) << name;
  }
}

// Steps 3 and 4 pass without training: weights and moments after them are those of step 2, and step 5 reads the
// samples and has the rate that it has without the gap.
TEST(SkippedSteps, CountTheirSamplesAndTrainNothing) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = tiny_run(folder / "data") + Words{"--save-interval", "2", "--lr-decay-samples", "80"};
  train(run + Words{"--save", folder / "straight"});
  const Words skip = run + Words{"--skip-train-iteration-range", "3-3", "4-4"};
  train(skip + Words{"--save", folder / "four", "--train-samples", "32"});
  EXPECT_EQ(different_tensors(folder / "four/step_00000002", folder / "straight/step_00000002"), Words{});
  EXPECT_EQ(different_tensors(folder / "four/step_00000002", folder / "four/step_00000004"), Words{});

  train(skip + Words{"--save", folder / "all"});
  const auto straight = step_records(folder / "straight"), all = step_records(folder / "all");
  ASSERT_EQ(straight.size(), 10u);
  ASSERT_EQ(all.size(), 8u);
  EXPECT_EQ(all[1], straight[1]);
  for (const char* same : {"step", "sample_hash", "learning_rate", "consumed_samples", "consumed_tokens"})
    EXPECT_EQ(all[2].at(same), straight[4].at(same)) << same;
  EXPECT_NE(all[2].at("lm_loss"), straight[4].at("lm_loss"));
}

// As one does after a spike: back to an older step, and past the samples that made it.
TEST(SkippedSteps, MayBeAskedForWhenARunGoesOn) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = tiny_run(folder / "data") + Words{"--save-interval", "2"};
  train(run + Words{"--save", folder / "run"});
  train(run + Words{"--save", folder / "run", "--load", folder / "run", "--ckpt-step", "4",
                    "--skip-train-iteration-range", "1-6"});
  std::vector<int64_t> steps;
  for (const auto& record : step_records(folder / "run")) steps.push_back(record.at("step"));
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 7, 8, 9, 10}));
}

// Thirty steps of which only the rounding of what linear layers multiply differs.
TEST(Fp8, LossesStayNearThoseOfBf16) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 400, 5);
  const Words run = tiny_run(folder / "data") + split_blanks(
                                                    "--bf16 --train-samples 240 --lr-decay-samples 240 "
                                                    "--hidden-dropout 0 --attention-dropout 0 --save-interval 1000");
  train(run + Words{"--save", folder / "bf16"});
  const auto bf16 = step_records(folder / "bf16");
  ASSERT_EQ(bf16.size(), 30u);
  const auto loss = [](const nlohmann::json& record) { return record.at("lm_loss").get<double>(); };
  ASSERT_LT(loss(bf16.back()), loss(bf16.front()) - 0.1);
  for (const char* format : {"e4m3", "hybrid"}) {
    train(run + Words{"--fp8-format", format, "--save", folder / format});
    const auto fp8 = step_records(folder / format);
    ASSERT_EQ(fp8.size(), 30u);
    EXPECT_NE(loss(fp8.front()), loss(bf16.front())) << format;
    for (size_t step = 0; step < fp8.size(); ++step)
      EXPECT_NEAR(loss(fp8[step]), loss(bf16[step]), 0.02 * loss(bf16[step])) << format << ", step " << step + 1;
  }
  EXPECT_NE(loss(step_records(folder / "e4m3").back()), loss(step_records(folder / "hybrid").back()));
}

class SameNumbers : public ::testing::TestWithParam<Words> {};

// Splitting a batch differently, or recomputing, moves sums by rounding only: fp32, relative to the plain run.
TEST_P(SameNumbers, LossesStayWithinRounding) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  train(tiny_run(folder / "data") + Words{"--save", folder / "plain", "--save-interval", "100"});
  train(tiny_run(folder / "data") + Words{"--save", folder / "other", "--save-interval", "100"} + GetParam());
  const auto plain = step_records(folder / "plain"), other = step_records(folder / "other");
  ASSERT_EQ(plain.size(), other.size());
  EXPECT_NEAR(other[0].at("lm_loss").get<double>(), plain[0].at("lm_loss").get<double>(),
              1e-6 * plain[0].at("lm_loss").get<double>());
  EXPECT_NEAR(other[0].at("grad_norm").get<double>(), plain[0].at("grad_norm").get<double>(),
              1e-5 * plain[0].at("grad_norm").get<double>());
  for (size_t step = 0; step < plain.size(); ++step) {
    EXPECT_EQ(other[step].at("sample_hash"), plain[step].at("sample_hash"));
    EXPECT_NEAR(other[step].at("lm_loss").get<double>(), plain[step].at("lm_loss").get<double>(), 1e-4)
        << "step " << step + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Options, SameNumbers,
                         ::testing::Values(Words{"--micro-batch-size", "4"}, Words{"--micro-batch-size", "1"},
                                           Words{"--checkpoint-activations"}, Words{"--num-threads", "1"},
                                           Words{"--recompute-granularity", "full", "--recompute-method", "block",
                                                 "--recompute-num-layers", "1"}));

}  // namespace training_test
}  // namespace espalier::test
