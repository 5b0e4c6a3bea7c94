// What a run reports, and options that must not change what is learnt.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/e2e/run_fixture.h"

namespace espalier::test {
namespace training_test {

// The loss of a blend is the mean of its data sets' losses, weighed by their tokens; each is there by name.
TEST(Blend, EveryDataSetReportsItsOwnLossByName) {
  const TemporaryFolder folder;
  write_token_files(folder / "swahili", 150, 1);
  write_token_files(folder / "basque", 150, 2);
  train(tiny_run("1") + Words{"--data-path", "0.75", folder / "swahili", "0.25", folder / "basque", "--save",
                              folder / "run", "--save-interval", "100"});
  const auto records = step_records(folder / "run");
  ASSERT_EQ(records.size(), 10u);
  double total = 0;
  for (const auto& record : records) {
    const auto& by_source = record.at("lm_loss_by_data_set");
    ASSERT_TRUE(by_source.contains("swahili") && by_source.contains("basque")) << record;
    // 8 samples a step, 6 of one and 2 of the other.
    EXPECT_NEAR(record.at("lm_loss").get<double>(),
                0.75 * by_source.at("swahili").get<double>() + 0.25 * by_source.at("basque").get<double>(), 1e-5);
    total += record.at("lm_loss").get<double>();
  }
  EXPECT_LT(records.back().at("lm_loss").get<double>(), records.front().at("lm_loss").get<double>());
}

TEST(Evaluation, NamedGroupsAreReportedByName) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 1);
  const std::string range = " " + folder / "data";
  Words flags;
  bool skip = false;
  for (const std::string& word : tiny_run("unused")) {  // without --data-path and --split
    if (word == "--data-path" || word == "--split")
      skip = true;
    else if (!skip)
      flags.push_back(word);
    else
      skip = false;
  }
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
