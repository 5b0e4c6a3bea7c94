// Real ranks that hang in each of the six phases in which a rank can be: every one is named with its phase and ended,
// and the run goes on. Some of them in the suite, 300 with ESPALIER_TEST_ALL.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "base/format.h"
#include "tests/launch/launch_fixture.h"
#include "tests/launch/launcher_process.h"
#include "tests/support/planted_hang.h"

namespace espalier::test {
namespace planted_hangs_test {

using Clock = std::chrono::steady_clock;

constexpr double kLongestToName = 90;  // a busy rank is named after a minute
constexpr int kPlantsOfOneRun = 7;     // one in each phase, and a second at the end
constexpr RunPhase kPhases[] = {RunPhase::kStart,    RunPhase::kLoad, RunPhase::kTrain,
                                RunPhase::kEvaluate, RunPhase::kSave, RunPhase::kExit};

// The first words of the shared memory, as the tests read them.
TEST(PlantedHangs, ReadWhatARankSaysOfItself) {
  const WhereaboutsBoard& board = WhereaboutsBoard::of_this_process();
  const std::string variable = board.variable(0);
  const int descriptor = std::stoi(variable.substr(0, variable.find(':')));
  const RankWhereabouts here(getpid(), dup(descriptor), 0);
  EXPECT_TRUE(here.is_open());
  for (int phase = 0; phase < kNumRunPhases; ++phase) {
    set_phase(static_cast<RunPhase>(phase), 1'000'000'007 + phase);
    EXPECT_EQ(here.phase(), board.sight(0).phase);
    EXPECT_EQ(here.step(), 1'000'000'007 + phase);
    EXPECT_EQ(here.waiting(), Waiting::kNothing);
    const WaitsFor waits(Waiting::kOthers, "a test", "nobody");
    EXPECT_EQ(here.waiting(), Waiting::kOthers);
  }
}

struct Outcome {
  RunPhase phase{};
  Hang kind{};
  double seconds = 0;  // until it was named
  std::string trouble;
};

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

// A run that hangs again and again, once in each phase.
class HangingRun {
 public:
  HangingRun(const TemporaryFolder& folder, int number)
      : random_(static_cast<unsigned>(number) + 17), run_(folder / concat("run", number)), log_(run_ + ".log") {
    const Words training = Words{"train", "gpt"} + tiny_run(folder / "data") +
                           Words{"--num-threads",
                                 "1",
                                 "--train-samples",
                                 "1600",
                                 "--lr-decay-samples",
                                 "1600",
                                 "--eval-interval",
                                 "3",
                                 "--save-interval",
                                 "4",
                                 "--save",
                                 run_,
                                 "--load",
                                 run_};
    launcher_ = std::make_unique<LauncherProcess>(
        log_, Words{"--nproc-per-node", "2", "--max-restarts", "1000", "--shutdown-timeout", "5"} + training);
  }

  std::vector<Outcome> hang_in_all_phases() {
    // Before the first step and in a step by turns, as a run that gains no step ends after a while.
    for (const RunPhase phase : {RunPhase::kStart, RunPhase::kTrain, RunPhase::kLoad, RunPhase::kEvaluate,
                                 RunPhase::kSave, RunPhase::kExit, RunPhase::kExit})
      hang_once(phase, kind_for(phase));
    if (!wait_until(120, [&] { return !launcher_->runs(); }))
      note({}, "the run has not ended");
    else if (launcher_->exit_code() != 0)
      note({}, concat("the run ended with ", launcher_->exit_code(), ":\n", read_file(log_)));
    return outcomes_;
  }

 private:
  // A rank that sleeps before and after training is left alone for longer than one that is stopped; one that computes
  // is known for a hang only once a hundred stretches of its work are known.
  Hang kind_for(RunPhase phase) {
    if (!long_version()) return Hang::kStop;  // named soonest
    const unsigned draw = random_() % 8;
    if (phase == RunPhase::kTrain && draw == 0) return Hang::kBusy;
    return draw <= 2 ? Hang::kAsleep : Hang::kStop;
  }

  void note(Outcome outcome, const std::string& trouble) {
    outcome.trouble = trouble;
    outcomes_.push_back(outcome);
  }

  std::optional<RankWhereabouts> fresh_rank(int64_t number) {
    std::optional<RankWhereabouts> rank;
    const auto end = Clock::now() + std::chrono::seconds(60);
    while (!rank && Clock::now() < end && launcher_->runs()) {
      const auto ranks = launcher_->ranks();
      const auto found = ranks.find(number);
      if (found != ranks.end() && !ended_.contains(found->second) && !has_ended(found->second))
        rank = RankWhereabouts::of(found->second);
      if (!rank) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return rank;
  }

  // Tries it in one start after the other, as a phase of a few milliseconds may pass unseen.
  void hang_once(RunPhase phase, Hang kind) {
    Outcome outcome{.phase = phase, .kind = kind, .trouble = {}};
    for (int attempt = 0; attempt < 3; ++attempt) {
      const int64_t number = static_cast<int64_t>(random_() % 2);
      const auto rank = fresh_rank(number);
      if (!rank) break;
      // A busy one after enough steps for its time limit to be known.
      const int64_t step = kind == Hang::kBusy ? rank->step() + 60 : 0;
      if (!plant_in(*rank, phase, kind, 60, step)) continue;
      const auto start = Clock::now();
      const auto ranks = launcher_->ranks();  // none of them is one of the next start
      const std::string named = concat("rank ", number, " (process ", rank->pid(), " on ");
      const size_t before = count(read_file(log_), "the run hangs: ");
      const bool was_named = wait_until(kLongestToName, [&] {
        const std::string log = read_file(log_);
        return count(log, "the run hangs: ") > before && log.find(named) != std::string::npos;
      });
      outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
      const std::string log = read_file(log_);
      if (!was_named) {
        kill(rank->pid(), SIGKILL);
        return note(outcome, concat("not named: ", named, "\n", log));
      }
      const size_t at = log.find(named);
      const std::string line = log.substr(at, log.find('\n', at) - at);
      const bool is_right = line.find(concat(" in phase ", to_string(phase))) != std::string::npos ||
                            (phase == RunPhase::kStart && line.find("before it began") != std::string::npos);
      wait_until(20, [&] { return has_ended(rank->pid()); });
      for (const auto& [other, pid] : ranks) ended_.insert(pid);
      return note(outcome, is_right ? "" : concat("named in another phase than ", to_string(phase), ": ", line));
    }
    note(outcome, "");
    outcomes_.back().seconds = -1;  // it could not be planted
  }

  std::mt19937 random_;
  const std::string run_, log_;
  std::unique_ptr<LauncherProcess> launcher_;
  std::set<pid_t> ended_;
  std::vector<Outcome> outcomes_;
};

// What was planted is found, each kind in each phase; the times are printed.
TEST(PlantedHangs, AreAllNamedInTheirPhase) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 300, 5);
  setenv("LD_PRELOAD", ESPALIER_PLANTED_FAULTS, 1);
  const bool all = long_version();
  const int wanted = all ? 300 : kPlantsOfOneRun - 1;
  std::mutex mutex;
  std::vector<Outcome> outcomes;
  int num_started = 0, num_under_way = 0;
  const auto num_planted = [&] {
    return std::count_if(outcomes.begin(), outcomes.end(), [](const Outcome& one) { return one.seconds >= 0; });
  };
  const auto has_planted_in = [&](RunPhase phase) {
    const auto is_one = [&](const Outcome& one) { return one.seconds >= 0 && one.phase == phase; };
    return std::any_of(outcomes.begin(), outcomes.end(), is_one);
  };
  // What runs under way will plant counts: who plants less than that begins another run.
  const auto is_enough = [&] {
    return num_planted() + num_under_way * kPlantsOfOneRun >= wanted &&
           (num_under_way > 0 || std::all_of(std::begin(kPhases), std::end(kPhases), has_planted_in));
  };
  // The runs wait most of their time.
  std::vector<std::thread> threads;
  for (int thread = 0; thread < (all ? 6 : 2); ++thread)
    threads.emplace_back([&] {
      while (true) {
        int number = 0;
        {
          const std::lock_guard lock(mutex);
          if (is_enough() || num_started > 2 * (wanted / kPlantsOfOneRun + 1)) return;
          number = num_started++;
          ++num_under_way;
        }
        HangingRun run(folder, number);
        const std::vector<Outcome> found = run.hang_in_all_phases();
        const std::lock_guard lock(mutex);
        --num_under_way;
        outcomes.insert(outcomes.end(), found.begin(), found.end());
        std::filesystem::remove_all(folder / concat("run", number));
      }
    });
  for (std::thread& thread : threads) thread.join();
  unsetenv("LD_PRELOAD");
  std::map<std::pair<RunPhase, Hang>, std::vector<double>> times;
  for (const Outcome& one : outcomes) {
    EXPECT_EQ(one.trouble, "");
    if (one.seconds >= 0) times[{one.phase, one.kind}].push_back(one.seconds);
  }
  for (auto& [what, seconds] : times) {
    std::sort(seconds.begin(), seconds.end());
    std::printf("%8s in phase %-8s %3zu planted; named after %.1f s in the middle, %.1f s at most\n",
                in_words(what.second).c_str(), to_string(what.first).c_str(), seconds.size(),
                seconds[seconds.size() / 2], seconds.back());
  }
  std::printf("%td planted in all\n", num_planted());
  EXPECT_GE(num_planted(), wanted);
  for (const RunPhase phase : kPhases) EXPECT_TRUE(has_planted_in(phase)) << to_string(phase);
}

}  // namespace planted_hangs_test
}  // namespace espalier::test
