// Learning rates in phases as a user meets them: a trunk, cooldowns that branch off it, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"

namespace espalier {
namespace schedule_command_test {

class ScheduleCommand : public Command {
 protected:
  std::string train(int steps = 20) const {
    const std::string vocabulary = root() + "/tests/data/gpt2-tiny/";
    return concat(
        "espalier train gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 "
        "--max-position-embeddings 16 --micro-batch-size 2 --global-batch-size 4 --train-iters ",
        steps, " --lr 1e-2 --min-lr 1e-3 --split 90,10,0 --eval-iters 0 --log-interval 1 --num-threads 1 --data-path ",
        root(), "/tests/data/owt-20_text_document --tokenizer-type GPT2BPETokenizer --vocab-file ", vocabulary,
        "vocab.json --merge-file ", vocabulary, "merges.txt ");
  }
  std::vector<nlohmann::json> steps(const std::string& run) const {
    std::istringstream lines(read_file(folder_ / "work" / run / "metrics.jsonl"));
    std::vector<nlohmann::json> records;
    for (std::string line; std::getline(lines, line);)
      if (nlohmann::json record = nlohmann::json::parse(line); record.contains("sample_hash"))
        records.push_back(std::move(record));
    return records;
  }
};

TEST_F(ScheduleCommand, CooldownsBranchOffATrunkByOneChangedOption) {
  const std::string trunk = "--lr-phases linear:20 constant:rest ";
  const std::string a = "--lr-phases linear:20 constant:130 minus-sqrt:50 ",
                    b = "--lr-phases linear:20 constant:130 linear:50::0 ";
  const Outcome outcome =
      bash(concat("set -e; export OMP_WAIT_POLICY=passive; ", train(200), trunk,
                  "--save trunk --save-interval 150 2>trunk.log; ",                                                  //
                  train(200), a, "--save a --save-interval 200; ", train(200), b, "--save b --save-interval 200; ",  //
                  train(200), a, "--load trunk --ckpt-step 150 --save branch-a --save-interval 200; ",               //
                  train(200), b, "--load trunk --ckpt-step 150 --save branch-b --save-interval 200; ",
                  "espalier checkpoint diff a branch-a; espalier checkpoint diff b branch-b"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("bitwise equal"), outcome.output.rfind("bitwise equal")) << outcome.output;

  const std::vector<nlohmann::json> records = steps("a");
  ASSERT_EQ(records.size(), 200U);
  for (int step = 0; step < 200; ++step) {  // the rate of a step is that of the position before it
    const double expected = step <= 20    ? 1e-2 * step / 20
                            : step <= 150 ? 1e-2
                                          : 1e-3 + (1 - std::sqrt((step - 150) / 50.0)) * 9e-3;
    EXPECT_NEAR(records[static_cast<size_t>(step)]["learning_rate"].get<double>(), expected, 1e-15) << step;
  }
  EXPECT_EQ(records[12]["lr_phase"], "1 linear");
  EXPECT_EQ(records[100]["lr_phase"], "2 constant");
  EXPECT_EQ(records[199]["lr_phase"], "3 minus-sqrt");
}

TEST_F(ScheduleCommand, AScheduleWithAnotherPastIsNotTaken) {
  const Outcome outcome =
      bash(concat("export OMP_WAIT_POLICY=passive; ", train(),
                  "--lr-phases linear:4 constant:rest --save trunk --save-interval 15 ",
                  "--exit-interval 15 || exit 9; ", train(), "--lr-phases linear:4 constant:8 linear:8 --load trunk"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("Say which counts: --override-lr-scheduler"), std::string::npos) << outcome.errors;
}

TEST_F(ScheduleCommand, WeightDecayGrowsOverTheRun) {
  const Outcome outcome = bash(concat("export OMP_WAIT_POLICY=passive; ", train(),
                                      "--lr-decay-style WSD --lr-wsd-decay-iters 5 --weight-decay-incr-style linear "
                                      "--start-weight-decay 0.1 --end-weight-decay 0.5 --save run --save-interval 20"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const std::vector<nlohmann::json> records = steps("run");
  ASSERT_EQ(records.size(), 20U);
  for (int step = 0; step < 20; ++step)
    EXPECT_NEAR(records[static_cast<size_t>(step)]["weight_decay"].get<double>(), 0.1 + 0.4 * step / 20, 1e-15);
  EXPECT_EQ(records[15]["learning_rate"], 1e-2);
  EXPECT_NEAR(records[17]["learning_rate"].get<double>(), 1e-3 + (2 * std::pow(0.5, 0.4) - 1) * 9e-3, 1e-15);
}

TEST_F(ScheduleCommand, WhatContradictsIsRefusedAtOnce) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"--lr-phases linear:4 constant:rest --lr-warmup-iters 3 --lr-decay-style cosine",
       {"is the whole schedule; leave out --lr-decay-style", "leave out --lr-warmup-iters"}},
      {"--lr-phases linear:4:0:1 constant:rest", {"has the rate 1, above --lr"}},
      {"--lr-decay-style WSD", {"needs --lr-wsd-decay-iters"}},
      {"--lr-decay-style WSD --lr-wsd-decay-samples 4", {"use --lr-wsd-decay-iters"}},
      {"--lr-decay-style WSD --lr-wsd-decay-iters 19 --lr-warmup-iters 3",
       {"--lr-wsd-decay-iters 19 (command line) is longer than what the warm-up leaves of the decay"}},
      {"--lr-warmup-init 0.1 --lr-warmup-iters 3",
       {"--lr-warmup-init 0.1 (command line) is above --lr 0.01 (command line); use at most 0.01"}},
      {"--lr-decay-style infinite-cosine --min-lr 0", {"needs --min-lr above 0", "leave none of the decay"}},
      {"--lr-decay-style infinite-cosine --constant-lr 1e-4", {"is not between --min-lr, 0.001, and --lr, 0.01"}},
      {"--weight-decay-incr-style cosine", {"needs --start-weight-decay", "needs --end-weight-decay"}},
      {"--start-weight-decay 0.1", {"needs --weight-decay-incr-style"}},
  };
  for (const auto& [options, expected] : cases) {
    const Outcome outcome = bash(concat(train(), options, " --lr-cooldown-fraction 0.99 --lr-constant-fraction 0.01"));
    EXPECT_EQ(outcome.exit_code, 2) << options;
    for (const std::string& text : expected)
      EXPECT_NE(outcome.errors.find(text), std::string::npos) << options << "\n" << outcome.errors;
  }
}

}  // namespace schedule_command_test
}  // namespace espalier
