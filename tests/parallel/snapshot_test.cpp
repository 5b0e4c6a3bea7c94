// Ranks that die and are started again go on from the copies of their state in memory: to the bits of a run that was
// left alone, at most one step back. This process holds the memory, as a launcher does.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "dist/local_ranks.h"
#include "launch/snapshot_memory.h"
#include "plan/layout.h"
#include "store/run_folder.h"
#include "tests/e2e/run_fixture.h"
#include "tests/support/long_version.h"
#include "train/run.h"

namespace espalier::test {
namespace snapshot_test {

namespace fs = std::filesystem;

// Where a rank dies.
struct Death {
  enum class When {
    kAfterStep,       // of that number, before the state is copied
    kSoonAfterStart,  // so many milliseconds after it, wherever the rank is then
    kSoonAfterAStep,  // the first that it makes
  };
  int64_t rank = -1;
  When when = When::kAfterStep;
  int64_t step_or_milliseconds = 0;
};

void die_in(int64_t milliseconds) {
  std::thread([milliseconds] {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    kill(getpid(), SIGKILL);
  }).detach();
}

class Dies : public train::Observer {
 public:
  explicit Dies(const Death& death) : death_(death) {}
  void after_step(const report::StepReport& report) override {
    if (death_.when == Death::When::kAfterStep && report.step == death_.step_or_milliseconds) kill(getpid(), SIGKILL);
    if (death_.when == Death::When::kSoonAfterAStep && !std::exchange(dying_, true))
      die_in(death_.step_or_milliseconds);
  }

 private:
  const Death death_;
  bool dying_ = false;
};

class InMemory : public ::testing::Test {
 protected:
  InMemory() { write_token_files(folder_ / "data", 200, 3); }

  Words words(const std::string& save, const std::string& more) const {
    return tiny_run(folder_ / "data") +
           split_blanks(
               "--num-layers 4 --num-attention-heads 4 --seq-length 32 --micro-batch-size 1 --max-position-embeddings "
               "32 --make-vocab-size-divisible-by 1 --pad-vocab-size-to 5001 --num-threads 1 --save-interval 100000 "
               "--eval-iters 0 --log-level error") +
           Words{"--save", folder_ / save} + split_blanks(more);
  }

  // Returns whether the ranks ended well.
  static bool run(const std::string& layout_text, const launch::SnapshotMemory* memory, const Words& words,
                  const Death& death = {}) {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words all = words + plan::layout_flags(layout, 4);
    const auto rank = [&](const dist::Grid& grid) {
      if (memory != nullptr) {
        setenv(launch::kSnapshotsVariable, memory->variable(grid.rank).c_str(), 1);
        launch::open_snapshot_memory();
      }
      const bool dies = grid.rank == death.rank;
      if (dies && death.when == Death::When::kSoonAfterStart) die_in(death.step_or_milliseconds);
      set_log_level(LogLevel::kQuiet);
      ParsedRun parsed(all, grid);
      train::run(parsed.config, parsed.table, "", grid, [&](train::Job&) -> std::unique_ptr<train::Observer> {
        return dies ? std::make_unique<Dies>(death) : nullptr;
      });
      return std::string();
    };
    try {
      dist::run_ranks(layout.grid, rank);
      return true;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(death.rank < 0 ? "no failure" : "rank"), std::string::npos)
          << error.what();
      return false;
    }
  }

  // The steps from which the starts of a run went on.
  std::vector<int64_t> starts(const std::string& save) const {
    std::vector<int64_t> steps;
    std::ifstream file(folder_ / save + "/events.jsonl");
    for (std::string line; std::getline(file, line);)
      if (const auto event = nlohmann::json::parse(line); event.at("event") == "start")
        steps.push_back(event.at("step"));
    return steps;
  }

  std::vector<nlohmann::json> records_of(const std::string& save) const {
    return fs::exists(folder_ / save + "/metrics.jsonl") ? step_records(folder_ / save) : std::vector<nlohmann::json>();
  }

  // Of two runs of the same options: the last checkpoint, and what the log says of each step.
  void expect_equal(const std::string& a, const std::string& b, int64_t step) const {
    const std::string name = "/" + store::step_folder_name(step);
    EXPECT_EQ(different_tensors(folder_ / a + name, folder_ / b + name), Words());
    EXPECT_EQ(step_records(folder_ / a), step_records(folder_ / b));
  }

  TemporaryFolder folder_;
};

struct Case {
  const char *layout, *flags;
  bool has_replicas = false;  // of a rank's whole state
};

class EveryState : public InMemory, public ::testing::WithParamInterface<Case> {};

TEST_P(EveryState, OfARunGoesOnToTheSameBits) {
  const auto& [layout, flags, has_replicas] = GetParam();
  const std::string kept = concat(flags, " --non-persistent-save-interval 1");
  const launch::SnapshotMemory memory(4);
  EXPECT_TRUE(run(layout, nullptr, words("straight", flags)));
  EXPECT_FALSE(run(layout, &memory, words("killed", kept), {.rank = 1, .step_or_milliseconds = 4}));
  EXPECT_FALSE(run(layout, &memory, words("killed", kept), {.rank = 0, .step_or_milliseconds = 7}));
  EXPECT_TRUE(run(layout, &memory, words("killed", kept)));
  const std::vector<int64_t> begun = starts("killed"), before = {0, 3, 6};
  ASSERT_EQ(begun.size(), before.size());
  for (size_t at = 0; at < before.size(); ++at)
    if (has_replicas && at > 0)
      EXPECT_TRUE(begun[at] == before[at] || begun[at] == before[at] + 1)
          << begun[at] << ": a replica of the one that died may have copied the step";
    else
      EXPECT_EQ(begun[at], before[at]) << "a rank that dies before it has copied costs a step";
  expect_equal("straight", "killed", 10);
}

INSTANTIATE_TEST_SUITE_P(, EveryState,
                         ::testing::Values(Case{"tp2pp2sp", "--fp16"}, Case{"pp2vp2dp2", "--bf16 --ema 0.75", true},
                                           Case{"dp4zero2", "--bf16 --optimizer muon"}, Case{"dp2zero3", "--bf16"},
                                           Case{"tp2dp2zero1", "--bf16 --skip-step-sigma 6 --skip-step-window 4"},
                                           Case{"dp2", "--optimizer adamwschedulefree --lr-decay-style constant",
                                                true}),
                         [](const auto& info) { return std::string(info.param.layout); });

using RandomKills = InMemory;

TEST_F(RandomKills, CostAStepAtMostEachAndChangeNoBit) {
  const int kills = in_suite_or_all(50, 1000);
  const std::string flags = "--global-batch-size 2 --train-samples 200000 --lr-decay-style constant --bf16 ";
  const std::string kept = flags + "--non-persistent-save-interval 1";
  const launch::SnapshotMemory memory(2);
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  int64_t steps_made = 0, most_lost = 0;
  size_t num_starts = 0;
  for (int number = 0; number < kills; ++number) {
    const bool at_start = number % 4 == 3;
    const Death death{.rank = static_cast<int64_t>(random() % 2),
                      .when = at_start ? Death::When::kSoonAfterStart : Death::When::kSoonAfterAStep,
                      .step_or_milliseconds = static_cast<int64_t>(random() % (at_start ? 400 : 60))};
    ASSERT_FALSE(run("dp2zero1", &memory, words("killed", kept), death));
    const std::vector<int64_t> begun = starts("killed");
    if (begun.size() > num_starts) most_lost = std::max(most_lost, steps_made - begun.back());
    if (begun.size() > num_starts) steps_made = 0;  // those that were made twice count once
    num_starts = begun.size();
    if (const auto records = records_of("killed"); !records.empty())
      steps_made = std::max<int64_t>(steps_made, records.back().at("step"));
  }
  EXPECT_LE(most_lost, 1) << "seed " << seed;
  EXPECT_GT(steps_made, kills / 4) << "too few steps between kills to mean anything";
  const std::string end = concat(" --exit-interval ", steps_made + 1);
  ASSERT_TRUE(run("dp2zero1", &memory, words("killed", kept + end)));
  ASSERT_TRUE(run("dp2zero1", nullptr, words("straight", flags + end)));
  expect_equal("straight", "killed", steps_made + 1);
  std::printf("%d kills in %lld steps; at most %lld lost by one\n", kills, static_cast<long long>(steps_made),
              static_cast<long long>(most_lost));
}

}  // namespace snapshot_test
}  // namespace espalier::test
