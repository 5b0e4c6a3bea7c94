// --skip-step-sigma: a spike's update is not made, what follows is what it would be had it never been, and that in
// every layout and after a stop.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/file.h"
#include "data/token_store.h"
#include "tests/parallel/parity_runs.h"

namespace espalier::test {
namespace parallel_skip_step_test {

constexpr int64_t kSteps = 60;

class SkipStep : public ::testing::Test {
 protected:
  // Documents that a model learns at once, and one of other tokens.
  SkipStep() {
    data::TokenStoreWriter writer(folder_ / "text", data::TokenType::kUint16);
    for (int document = 0; document < 241; ++document) {
      std::vector<int32_t> ids(33);
      for (size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<int32_t>(document == 120 ? (i * i * 37 + 11 * i) % 5000 : 7 + i % 4);
      writer.add_sequence(ids);
      writer.end_document();
    }
    writer.finish();
  }

  Words flags(const std::string& more = "") const {
    return tiny_run(folder_ / "text") +
           split_blanks(concat(
               "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32"
               " --make-vocab-size-divisible-by 1 --pad-vocab-size-to 5003 --micro-batch-size 1 --split 100,0,0"
               " --global-batch-size 4 --train-samples ",
               4 * kSteps,
               " --lr-decay-style constant --lr-warmup-samples 0 --lr 1e-2 --num-threads 1 --hidden-dropout 0"
               " --attention-dropout 0 --eval-iters 0 --save-interval 1000 --log-level error ")) +
           split_blanks(more);
  }
  void run(const std::string& layout_text, const std::string& save, const Words& more) const {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words = flags() + plan::layout_flags(layout, 4) + Words{"--save", folder_ / save} + more;
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    });
  }
  std::vector<int64_t> skipped(const std::string& save) const {
    std::vector<int64_t> steps;
    for (const auto& step : step_records(folder_ / save))
      if (step.at("skipped") == true) steps.push_back(step.at("step"));
    return steps;
  }
  std::string last(const std::string& save) const { return folder_ / concat(save, "/step_000000", kSteps); }

  TemporaryFolder folder_;
  const Words skips_ = split_blanks("--skip-step-sigma 8 --skip-step-window 16");
};

TEST_F(SkipStep, IsWhatARunThatNeverMadeTheUpdateIs) {
  run("tp1", "plain", {});
  run("tp1", "skips", skips_);
  const std::vector<int64_t> steps = skipped("skips");
  ASSERT_EQ(steps.size(), 1u);
  const int64_t spike = steps[0];
  ASSERT_GT(spike, 16);
  ASSERT_LT(spike, kSteps - 2);
  // Its loss is above all of the window's, and the run that made the update diverges.
  const auto plain = step_records(folder_ / "plain"), skips = step_records(folder_ / "skips");
  const auto at = [](const auto& records, int64_t step, const char* name) {
    return records[static_cast<size_t>(step - 1)].at(name).template get<double>();
  };
  for (int64_t step = spike - 16; step < spike; ++step)
    EXPECT_LT(at(plain, step, "lm_loss"), at(plain, spike, "lm_loss")) << step;
  EXPECT_EQ(at(plain, spike, "lm_loss"), at(skips, spike, "lm_loss"));
  EXPECT_NE(at(plain, spike + 1, "lm_loss"), at(skips, spike + 1, "lm_loss"));
  // One that passes over the step by name has the same bits ever after.
  run("tp1", "named", {"--skip-train-iteration-range", concat(spike, "-", spike)});
  const auto named = step_records(folder_ / "named");
  for (int64_t step = spike + 1; step <= kSteps; ++step)
    for (const char* name : {"lm_loss", "grad_norm"})
      EXPECT_EQ(named[static_cast<size_t>(step - 2)].at(name), skips[static_cast<size_t>(step - 1)].at(name)) << step;
  EXPECT_EQ(different_tensors(last("named"), last("skips")), Words());
}

TEST_F(SkipStep, IsRecorded) {
  run("tp1", "skips", skips_);
  const std::vector<int64_t> steps = skipped("skips");
  ASSERT_EQ(steps.size(), 1u);
  std::ifstream file(folder_ / "skips/events.jsonl");
  Words details;
  for (std::string line; std::getline(file, line);)
    if (const auto event = nlohmann::json::parse(line); event.at("event") == "skip") {
      EXPECT_EQ(event.at("step"), steps[0]);
      details.push_back(event.at("detail"));
    }
  ASSERT_EQ(details.size(), 1u);
  EXPECT_EQ(details[0].find(concat("update of step ", steps[0], " not made: ")), 0u) << details[0];
  EXPECT_NE(details[0].find(concat("; samples ", 4 * (steps[0] - 1), " to ", 4 * steps[0] - 1, " of the run")),
            std::string::npos)
      << details[0];
  const auto record = step_records(folder_ / "skips")[static_cast<size_t>(steps[0] - 1)];
  EXPECT_NE(record.at("skipped_because").get<std::string>().find("is above"), std::string::npos);
}

// The one document of other tokens is among those recorded, and no step but the spike is recorded.
TEST_F(SkipStep, RecordsTheDocumentsOfTheSpike) {
  run("dp2", "skips", skips_);
  const std::vector<int64_t> steps = skipped("skips");
  ASSERT_EQ(steps.size(), 1u);
  Words files;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "skips/spikes"))
    files.push_back(entry.path().filename());
  ASSERT_EQ(files, Words{concat("step_000000", steps[0], ".txt")});
  const std::string text = read_file(folder_ / ("skips/spikes/" + files[0]));
  EXPECT_EQ(text.find(concat("sample ", 4 * (steps[0] - 1), "\n  document ")), 0u) << text;
  EXPECT_NE(text.find(concat("document 120 of ", folder_ / "text", ": ")), std::string::npos) << text;
  EXPECT_NE(read_file(folder_ / "skips/events.jsonl").find("; their documents are in spikes/" + files[0]),
            std::string::npos);
}

// What the run removes by itself, it removes but for the checkpoints on both sides of the spike.
TEST_F(SkipStep, KeepsTheCheckpointsAroundTheSpike) {
  run("tp1", "kept", skips_ + split_blanks("--save-interval 2 --save-keep-last 2"));
  const std::vector<int64_t> spikes = skipped("kept");
  ASSERT_EQ(spikes.size(), 1u);
  ASSERT_LT(spikes[0], kSteps - 4) << "or those around it are the last";
  const int64_t before = (spikes[0] - 1) / 2 * 2;
  EXPECT_EQ(saved_steps(folder_ / "kept"), (std::vector<int64_t>{before, before + 2, kSteps - 2, kSteps}));
}

TEST_F(SkipStep, HappensInEveryLayout) {
  run("tp1", "one", skips_);
  const std::vector<int64_t> steps = skipped("one");
  ASSERT_EQ(steps.size(), 1u);
  const auto one = step_records(folder_ / "one");
  for (const std::string layout : {"tp2sp", "pp2", "dp2zero1", "dp4zero3", "cp2", "tp2pp2dp1zb"}) {
    SCOPED_TRACE(layout);
    run(layout, layout, skips_);
    EXPECT_EQ(skipped(layout), steps);
    const auto other = step_records(folder_ / layout);
    ASSERT_EQ(other.size(), one.size());
    EXPECT_NEAR(other.back().at("lm_loss").get<double>() / one.back().at("lm_loss").get<double>(), 1, 1e-3);
  }
}

TEST_F(SkipStep, GoesOnAfterAStopWithTheSameBits) {
  run("dp2zero1", "straight", skips_);
  const std::vector<int64_t> steps = skipped("straight");
  ASSERT_EQ(steps.size(), 1u);
  // Stopped with a full window just before the spike.
  run("dp2zero1", "stopped", skips_ + Words{"--exit-interval", std::to_string(steps[0] - 1)});
  run("dp2zero1", "stopped", skips_ + Words{"--load", folder_ / "stopped"});
  EXPECT_EQ(skipped("stopped"), steps);
  EXPECT_EQ(different_tensors(last("straight"), last("stopped")), Words());
}

const Words kRollsBack = split_blanks("--spike-policy roll-back --save-interval 10");

// Goes on from the newest checkpoint before the spike, as a run does that is told to pass over the steps since.
TEST_F(SkipStep, RollsBackToTheNewestCheckpoint) {
  for (const std::string layout : {"tp1", "dp2zero1"}) {
    SCOPED_TRACE(layout);
    run(layout, "skips" + layout, skips_);
    const int64_t spike = skipped("skips" + layout).at(0), before = (spike - 1) / 10 * 10;
    const Words range = {"--skip-train-iteration-range", concat(before + 1, "-", spike)};
    run(layout, "back" + layout, skips_ + kRollsBack);
    run(layout, "told" + layout, skips_ + Words{"--exit-interval", std::to_string(before)});
    run(layout, "told" + layout, skips_ + range + Words{"--load", folder_ / ("told" + layout)});
    EXPECT_EQ(different_tensors(last("back" + layout), last("told" + layout)), Words());
    EXPECT_EQ(skipped("back" + layout), std::vector<int64_t>());  // the spike's record is set aside with those since
    const std::string events = read_file(folder_ / concat("back", layout, "/events.jsonl"));
    EXPECT_NE(events.find(concat("step ", spike, " is a spike: the run goes back to the checkpoint of step ", before,
                                 " and passes over steps ", before + 1, " to ", spike)),
              std::string::npos)
        << events;
    EXPECT_NE(read_file(folder_ / concat("back", layout, "/config.toml")).find(concat("\"", range[1], "\"")),
              std::string::npos);
  }
}

TEST_F(SkipStep, WithoutACheckpointBeforeItASpikeIsOnlySkipped) {
  run("tp1", "skips", skips_);
  run("tp1", "back", skips_ + Words{"--spike-policy", "roll-back"});
  EXPECT_EQ(different_tensors(last("skips"), last("back")), Words());
  EXPECT_NE(read_file(folder_ / "back/events.jsonl").find("there is no checkpoint to go back to"), std::string::npos);
}

// Where nearly every step counts as a spike the data are not the cause.
TEST_F(SkipStep, RollsBackToOneCheckpointThreeTimes) {
  const Words often = split_blanks("--skip-step-sigma 0.01 --skip-step-window 2");
  const Words words = flags() + Words{"--save", folder_ / "often"} + often + kRollsBack;
  const std::string error = dist::run_ranks({}, [&](const dist::Grid& grid) -> std::string {
    try {
      train(words, grid);
    } catch (const UserError& caught) {
      return concat(static_cast<int>(caught.code()), " ", caught.what());
    }
    return "";
  })[0];
  EXPECT_EQ(error.find("17 "), 0u) << error;
  EXPECT_NE(error.find(" 3 times: the data in between are not its cause"), std::string::npos) << error;
}

TEST_F(SkipStep, StopsAtASpike) {
  run("tp1", "skips", skips_);
  const int64_t spike = skipped("skips").at(0);
  run("dp2", "stops", skips_ + Words{"--spike-policy", "stop"});
  EXPECT_EQ(saved_steps(folder_ / "stops"), std::vector<int64_t>{spike});
  EXPECT_NE(read_file(folder_ / "stops/events.jsonl").find("--spike-policy is stop. Exiting"), std::string::npos);
  run("dp2", "stops", skips_ + Words{"--spike-policy", "stop", "--load", folder_ / "stops"});
  run("dp2", "through", skips_);
  EXPECT_EQ(different_tensors(last("stops"), last("through")), Words());
}

}  // namespace parallel_skip_step_test
}  // namespace espalier::test
