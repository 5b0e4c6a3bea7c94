#include "launch/hang_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace espalier::launch {
namespace hang_watch_test {

using testing::HasSubstr;
using testing::Not;

// A rank that trains, with 1,000 stretches of about 0.1 s behind it.
RankSight training(int64_t rank) {
  RankSight sight;
  sight.rank = rank;
  sight.pid = 100 + static_cast<pid_t>(rank);
  sight.state = 'R';
  sight.sight = {.is_open = true,
                 .phase = RunPhase::kTrain,
                 .step = 17,
                 .micro_batch = 2,
                 .waiting = Waiting::kNothing,
                 .waits_for = "",
                 .progress = 1000,
                 .seconds_since = 0,
                 .folder = "",
                 .num_stretches = 1000,
                 .percentile_99 = 0.131,
                 .longest = 0.4};
  return sight;
}

RankSight waiting(int64_t rank, double seconds) {
  RankSight sight = training(rank);
  sight.sight.waiting = Waiting::kPeers;
  sight.sight.waits_for = "all-reduce of data";
  sight.state = 'S';
  sight.seconds_still = sight.seconds_without_cpu = seconds;
  return sight;
}

RankSight still(int64_t rank, char state, double seconds, double without_cpu) {
  RankSight sight = training(rank);
  sight.state = state;
  sight.seconds_still = seconds;
  sight.seconds_without_cpu = without_cpu;
  if (state == 'T') sight.seconds_stopped = seconds;
  return sight;
}

TEST(HangWatch, NamesTheStoppedRankAndWhoWaitsForIt) {
  const std::vector<RankSight> ranks = {waiting(0, 5), waiting(1, 5.1), still(2, 'T', 5.2, 5.2), waiting(3, 4.9)};
  const auto hang = find_hang(ranks, {});
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->culprits, std::vector<size_t>{2});
  EXPECT_FALSE(hang->is_suspended);
  EXPECT_THAT(hang->text, HasSubstr("rank 2 (process 102 on "));
  EXPECT_THAT(hang->text, HasSubstr("is stopped (SIGSTOP, or a debugger) in phase train, step 17, micro-batch 2"));
  EXPECT_THAT(hang->text, HasSubstr("ranks 0, 1, 3 wait in all-reduce of data"));
}

TEST(HangWatch, WaitsForTheTimeThatIsDue) {
  EXPECT_FALSE(find_hang({waiting(0, 4.8), still(1, 'T', 4.9, 4.9)}, {}));
  EXPECT_FALSE(find_hang({waiting(0, 9), still(1, 'T', 9, 9)}, {.shortest = 10, .has_all_ranks = true}));
  EXPECT_FALSE(find_hang({waiting(0, 900), still(1, 'T', 900, 900)}, {.shortest = 0, .has_all_ranks = true}));
  RankSight slow = still(1, 'T', 20, 20);
  slow.sight.percentile_99 = 4.2;  // its stretches are long: 5 x that
  EXPECT_FALSE(find_hang({waiting(0, 20), slow}, {}));
  slow.seconds_still = 21.1;
  EXPECT_TRUE(find_hang({waiting(0, 20), slow}, {}));
}

TEST(HangWatch, ASleeperIsFoundSoonWhileTrainingAndLaterElsewhere) {
  EXPECT_TRUE(find_hang({waiting(0, 6), still(1, 'S', 6, 5.5)}, {}));
  RankSight loading = still(1, 'S', 14, 14);
  loading.sight.phase = RunPhase::kLoad;
  EXPECT_FALSE(find_hang({waiting(0, 14), loading}, {}));
  loading.seconds_still = loading.seconds_without_cpu = 15.1;
  EXPECT_TRUE(find_hang({waiting(0, 14), loading}, {}));
}

TEST(HangWatch, ABusyRankAndADiskHaveLongTimes) {
  EXPECT_FALSE(find_hang({waiting(0, 29), still(1, 'R', 59, 0.1)}, {}));
  EXPECT_TRUE(find_hang({waiting(0, 61), still(1, 'R', 61, 0.1)}, {}));
  RankSight young = still(1, 'R', 3000, 0.1);
  young.sight.num_stretches = 40;  // the first step may take as long as it likes
  EXPECT_FALSE(find_hang({waiting(0, 3000), young}, {}));
  RankSight saving = still(1, 'D', 299, 299);
  saving.sight.longest = 100;
  EXPECT_FALSE(find_hang({waiting(0, 299), saving}, {}));
  saving.seconds_still = 301;
  EXPECT_TRUE(find_hang({waiting(0, 301), saving}, {}));
}

TEST(HangWatch, WhoWaitsForSomethingElseIsNotAtFault) {
  RankSight other = waiting(1, 5000);
  other.sight.waiting = Waiting::kOthers;
  EXPECT_FALSE(find_hang({waiting(0, 5000), other}, {}));
}

TEST(HangWatch, WhereAllWaitTheOneThatHasComeLeastFarIsNamed) {
  std::vector<RankSight> ranks = {waiting(0, 31), waiting(1, 31), waiting(2, 31)};
  ranks[1].sight.progress = 990;
  ranks[1].sight.waits_for = "broadcast of tensor";
  const auto hang = find_hang(ranks, {});
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->culprits, std::vector<size_t>{1});
  EXPECT_THAT(hang->text, HasSubstr("waits for a rank that waits as well in phase train, step 17, micro-batch 2, "
                                    "broadcast of tensor"));
  ranks[2].seconds_still = 29;
  EXPECT_FALSE(find_hang(ranks, {}));
  ranks[2].seconds_still = 31;
  EXPECT_FALSE(find_hang(ranks, {.shortest = 5, .has_all_ranks = false})) << "the culprit is elsewhere";
}

TEST(HangWatch, ARunThatSomebodySuspendedIsLeftAlone) {
  const auto hang = find_hang({still(0, 'T', 6, 6), still(1, 'T', 6, 6)}, {});
  ASSERT_TRUE(hang);
  EXPECT_TRUE(hang->is_suspended);
  EXPECT_FALSE(find_hang({still(0, 'T', 6, 6), still(1, 'T', 4, 4)}, {}));
}

// Some of the run have come to its end; the others will not without help.
TEST(HangWatch, WhereOthersHaveEndedAStoppedRankIsNotSuspended) {
  RankSight gone = still(1, 'T', 100, 100);
  gone.pid = -1;
  const auto hang = find_hang({still(0, 'T', 6, 6), gone}, {});
  ASSERT_TRUE(hang);
  EXPECT_FALSE(hang->is_suspended);
  EXPECT_EQ(hang->culprits, std::vector<size_t>{0});
}

// It has waited for long, for another that is slow, when somebody stops it, perhaps to read its stack.
TEST(HangWatch, TheTimeOfAStopBeginsWithTheStop) {
  RankSight stopped = still(1, 'T', 600, 600);
  stopped.sight.waiting = Waiting::kPeers;
  stopped.seconds_stopped = 4.9;
  EXPECT_FALSE(find_hang({still(0, 'R', 30, 0), stopped}, {}));
  EXPECT_FALSE(find_hang({still(0, 'R', 30, 0), stopped}, {}, 100)) << "it was told to end";
  stopped.seconds_stopped = 5;
  const auto hang = find_hang({still(0, 'R', 30, 0), stopped}, {});
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->culprits, std::vector<size_t>{1});
}

// Two ranks on a clock of their own, looked at each quarter of a second.
class TwoRanks {
 public:
  std::vector<Sight> sights = {training(0).sight, waiting(1, 0).sight};
  std::string states = "RS";

  // What is found within so many seconds.
  std::vector<Hang> look_for(double seconds) {
    std::vector<Hang> found;
    for (const double end = now_ + seconds; now_ < end; now_ += 0.25)
      if (const auto hang = watch_.look({100, 101})) found.push_back(*hang);
    return found;
  }
  void pause(double seconds) { now_ += seconds; }

 private:
  double now_ = 1000;
  HangWatch watch_{{.now = [this] { return now_; },
                    .sight = [this](int64_t rank) { return sights[static_cast<size_t>(rank)]; },
                    .state = [this](pid_t pid) -> internal::ProcessState {
                      return {.state = states[static_cast<size_t>(pid - 100)], .cpu_ticks = 1};
                    }},
                   0,
                   {}};
};

// The run is suspended while one rank has waited for long, and the other has only just made progress: it is not seen
// stopped at once.
TEST(HangWatch, ARunThatIsSuspendedWhileARankWaitsIsLeftAlone) {
  TwoRanks ranks;
  for (int look = 0; look < 40; ++look) {
    ++ranks.sights[0].progress;
    EXPECT_EQ(ranks.look_for(0.25).size(), 0);
  }
  ++ranks.sights[0].progress;
  ranks.states = "TT";
  const std::vector<Hang> found = ranks.look_for(60);
  ASSERT_EQ(found.size(), 1);
  EXPECT_TRUE(found[0].is_suspended) << found[0].text;
}

// Somebody stops the ranks one after another.
TEST(HangWatch, ARunThatIsBeingSuspendedIsLeftAlone) {
  TwoRanks ranks;
  for (int look = 0; look < 40; ++look) {
    ++ranks.sights[0].progress;
    EXPECT_EQ(ranks.look_for(0.25).size(), 0);
  }
  ranks.states = "RT";
  EXPECT_EQ(ranks.look_for(1).size(), 0);
  ranks.states = "TT";
  const std::vector<Hang> found = ranks.look_for(60);
  ASSERT_EQ(found.size(), 1);
  EXPECT_TRUE(found[0].is_suspended) << found[0].text;
}

TEST(HangWatch, ARunThatStaysSuspendedIsReportedOnce) {
  TwoRanks ranks;
  ranks.look_for(1);
  ranks.states = "TT";
  EXPECT_EQ(ranks.look_for(10).size(), 1);
  ranks.pause(30);  // the launcher waits for its store
  EXPECT_EQ(ranks.look_for(60).size(), 0);
  ranks.states = "RS";
  EXPECT_EQ(ranks.look_for(1).size(), 0);
  ranks.states = "TT";
  EXPECT_EQ(ranks.look_for(10).size(), 1) << "it was let go on, and is suspended again";
  ranks.pause(30);
  ++ranks.sights[0].progress;  // meanwhile it went on
  EXPECT_EQ(ranks.look_for(10).size(), 1);
}

// A launcher whose store answers after 2.5 s each time looks now and then: these times do not count, the others do.
TEST(HangWatch, ALauncherThatWaitsAgainAndAgainNamesWhoHangs) {
  TwoRanks ranks;
  ranks.sights[0].waiting = Waiting::kNothing;
  ranks.states = "SS";
  double looked_for = 0;
  while (looked_for < 100 && ranks.look_for(1).empty()) {
    ranks.pause(2.5);
    ++looked_for;
  }
  EXPECT_GE(looked_for, 5 - 1) << "the pauses count";
  EXPECT_LT(looked_for, 100) << "it is never named";
}

// All of them were in an all-reduce, or asleep for a moment, when the run was suspended.
TEST(HangWatch, ARunThatGoesOnAfterItWasSuspendedIsNotTakenForOneThatHangs) {
  for (const Waiting waits : {Waiting::kPeers, Waiting::kNothing}) {
    TwoRanks ranks;
    ranks.sights[0].waiting = waits;
    ranks.look_for(1);
    ranks.states = "TT";
    EXPECT_EQ(ranks.look_for(600).size(), 1);
    ranks.states = "SS";
    EXPECT_EQ(ranks.look_for(4).size(), 0);
    EXPECT_EQ(ranks.look_for(60).size() > 0, true) << "it hangs nevertheless";
  }
}

TEST(HangWatch, AStoppedRankIsNamedWhereverItWaits) {
  RankSight stopped = still(1, 'T', 6, 6);
  stopped.sight.waiting = Waiting::kOthers;
  EXPECT_TRUE(find_hang({waiting(0, 6), stopped}, {}));
}

// Reading from a disk costs processor time; a dead file system costs none.
TEST(HangWatch, ARankThatCopiesWhatComesFromADiskIsBusy) {
  RankSight loading = still(1, 'D', 70, 0.1);
  loading.sight.num_stretches = 40;
  EXPECT_FALSE(find_hang({waiting(0, 70), loading}, {}));
  loading.seconds_without_cpu = 70;
  EXPECT_TRUE(find_hang({waiting(0, 70), loading}, {}));
}

TEST(HangWatch, OnceTheRunWasToldToEndABusyRankHasALimitFromThenOn) {
  RankSight young = still(1, 'R', 3000, 0.1);
  young.sight.num_stretches = 0;
  EXPECT_FALSE(find_hang({waiting(0, 3000), young}, {}, 59));
  EXPECT_TRUE(find_hang({waiting(0, 3000), young}, {}, 61));
  young.seconds_still = 50;  // it has done something since
  EXPECT_FALSE(find_hang({waiting(0, 3000), young}, {}, 61));
  young.seconds_still = 299, young.sight.longest = 100;  // as its work before
  EXPECT_FALSE(find_hang({waiting(0, 3000), young}, {}, 3000));
  young.seconds_still = 3000;
  EXPECT_FALSE(find_hang({waiting(0, 3000), young}, {.shortest = 0}, 3000)) << "it is turned off";
  EXPECT_FALSE(find_hang({waiting(0, 3000), young}, {.shortest = 70}, 61));
}

TEST(HangWatch, ASuspendedRunThatWasToldToEndIsEnded) {
  const std::vector<RankSight> ranks = {still(0, 'T', 600, 600), still(1, 'T', 600, 600)};
  ASSERT_TRUE(find_hang(ranks, {}, 59));
  EXPECT_TRUE(find_hang(ranks, {}, 59)->is_suspended);
  ASSERT_TRUE(find_hang(ranks, {}, 61));
  EXPECT_FALSE(find_hang(ranks, {}, 61)->is_suspended);
  EXPECT_EQ(find_hang(ranks, {}, 61)->culprits, (std::vector<size_t>{0, 1}));
}

TEST(HangWatch, RanksThatHaveEndedAreNotLookedAt) {
  RankSight gone = still(1, 'T', 100, 100);
  gone.pid = -1;
  EXPECT_FALSE(find_hang({waiting(0, 100), gone}, {.shortest = 5, .has_all_ranks = false}));
}

// Real processes: one that works, one that waits for it, one that is stopped.
TEST(HangWatch, SeesAStoppedProcess) {
  const WhereaboutsBoard board(2);
  std::vector<pid_t> pids;
  for (int64_t rank = 0; rank < 2; ++rank) {
    const std::string variable = board.variable(rank);
    const pid_t pid = fork();
    if (pid == 0) {
      setenv(kWhereaboutsVariable, variable.c_str(), 1);
      open_whereabouts();
      note_run_folder("/runs/here");
      set_phase(RunPhase::kEvaluate, 3);
      for (int i = 0; i < 6000; ++i) {
        note_progress(1);
        if (rank == 1 && i > 20) {
          const WaitsFor waits(Waiting::kPeers, "barrier", "world");
          std::this_thread::sleep_for(std::chrono::seconds(60));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      _exit(0);
    }
    pids.push_back(pid);
  }
  HangWatch watch(HangSenses::of(board), 6, {.shortest = 1, .has_all_ranks = true});
  std::optional<Hang> hang;
  const auto look_for = [&](double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!hang && std::chrono::steady_clock::now() < end) {
      hang = watch.look(pids);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  };
  look_for(2);
  EXPECT_FALSE(hang);
  kill(pids[0], SIGSTOP);
  look_for(60);
  for (const pid_t pid : pids) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->culprits, std::vector<size_t>{0});
  EXPECT_THAT(hang->text, HasSubstr("rank 6 (process "));
  EXPECT_THAT(hang->text, HasSubstr("in phase evaluate, step 3, micro-batch 1"));
  EXPECT_THAT(hang->text, HasSubstr("rank 7 waits in barrier of world"));
  EXPECT_EQ(board.sight(0).folder, "/runs/here");
}

}  // namespace hang_watch_test
}  // namespace espalier::launch
