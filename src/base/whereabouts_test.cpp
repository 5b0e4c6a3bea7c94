#include "base/whereabouts.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "base/error.h"

namespace espalier {
namespace whereabouts_test {

void in_a_rank(const WhereaboutsBoard& board, int64_t rank, const std::function<void()>& work) {
  const std::string variable = board.variable(rank);
  const pid_t pid = fork();
  if (pid == 0) {
    setenv(kWhereaboutsVariable, variable.c_str(), 1);
    open_whereabouts();
    work();
    _exit(getenv(kWhereaboutsVariable) == nullptr ? 0 : 9);  // what a rank starts is not a rank
  }
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// Only the rank's own thread is stopped, and only while its peers are lost.
TEST(Whereabouts, ARankThatHasLostItsPeersMakesNoProgress) {
  const WhereaboutsBoard board(1);
  in_a_rank(board, 0, [] {
    note_progress(1);
    std::thread([] { lose_peers(true), note_progress(2); }).join();
    try {
      note_progress(3);
      _exit(1);
    } catch (const UserError& error) {
      if (error.code() != ExitCode::kLostPeer) _exit(2);
    }
    lose_peers(false);
    note_progress(4);
  });
  EXPECT_EQ(board.sight(0).micro_batch, 4);
  EXPECT_EQ(board.sight(0).progress, 2U);
}

TEST(Whereabouts, OfARankAreReadByItsLauncher) {
  const WhereaboutsBoard board(3);
  EXPECT_FALSE(board.sight(1).is_open);
  in_a_rank(board, 1, [] {
    note_run_folder("runs/a");
    set_phase(RunPhase::kTrain, 12);
    note_progress(4);
  });
  const Sight sight = board.sight(1);
  EXPECT_TRUE(sight.is_open);
  EXPECT_EQ(sight.phase, RunPhase::kTrain);
  EXPECT_EQ(sight.step, 12);
  EXPECT_EQ(sight.micro_batch, 4);
  EXPECT_EQ(sight.waiting, Waiting::kNothing);
  EXPECT_EQ(sight.folder, "runs/a");
  EXPECT_EQ(sight.progress, 2U);
  EXPECT_FALSE(board.sight(0).is_open);
  EXPECT_FALSE(board.sight(2).is_open);
}

TEST(Whereabouts, AWaitIsNamedWhileItLasts) {
  const WhereaboutsBoard board(1);
  in_a_rank(board, 0, [] {
    set_phase(RunPhase::kSave, 3);
    { const WaitsFor waits(Waiting::kPeers, "barrier", "world"); }
    new WaitsFor(Waiting::kPeers, "all-gather", std::string(1000, 'g'));  // this rank dies waiting
  });
  const Sight sight = board.sight(0);
  EXPECT_EQ(sight.waiting, Waiting::kPeers);
  EXPECT_EQ(sight.waits_for, "all-gather of " + std::string(127, 'g'));
  EXPECT_EQ(sight.num_stretches, 1) << "that of the barrier";
}

TEST(Whereabouts, StretchesBetweenSignsOfProgressAreCountedByPhase) {
  const WhereaboutsBoard board(1);
  in_a_rank(board, 0, [] {
    set_phase(RunPhase::kTrain, 1);
    for (int i = 0; i < 300; ++i) note_progress();
    pause(60);
    note_progress();
    set_phase(RunPhase::kEvaluate, 1);
    set_phase(RunPhase::kTrain, 2);
  });
  const Sight sight = board.sight(0);
  EXPECT_EQ(sight.num_stretches, 302);
  EXPECT_GE(sight.longest, 0.06);
  EXPECT_LT(sight.longest, 30);
  EXPECT_LT(sight.percentile_99, 0.03) << "one of 302 is less than a hundredth";
}

TEST(Whereabouts, OtherThreadsSayNothing) {
  const WhereaboutsBoard board(1);
  in_a_rank(board, 0, [] { std::thread([] { set_phase(RunPhase::kExit, 9); }).join(); });
  EXPECT_EQ(board.sight(0).phase, RunPhase::kStart);
}

TEST(Whereabouts, WithoutALauncherNothingHappens) {
  open_whereabouts();
  set_phase(RunPhase::kTrain, 1);
  note_progress(1);
  const WaitsFor waits(Waiting::kPeers, "barrier", "world");
}

TEST(Whereabouts, CarryWishesToTheRank) {
  const WhereaboutsBoard board(2);
  board.ask_for_save(1);
  board.ask_for_save(1);
  board.ask_for_pause(1, true);
  board.ask_for_log_level(1, LogLevel::kQuiet);
  in_a_rank(board, 1, [] {
    const Wishes here = wishes();
    if (here.num_saves != 2 || !here.pause || here.log_level != LogLevel::kQuiet) _exit(1);
  });
  in_a_rank(board, 0, [] {
    const Wishes here = wishes();
    if (here.num_saves != 0 || here.pause || here.log_level) _exit(1);
  });
  board.ask_for_pause(1, false);
  EXPECT_FALSE(board.wishes(1).pause);
}

TEST(Whereabouts, TellHowLongTheRankHasWaitedForPeers) {
  const WhereaboutsBoard board(1);
  in_a_rank(board, 0, [] {
    {
      const WaitsFor waits(Waiting::kOthers, "start", "all");
      pause(50);
    }
    if (seconds_waited_for_peers() != 0) _exit(1);
    {
      const WaitsFor waits(Waiting::kPeers, "barrier", "world");
      pause(50);
    }
    pause(30);
    if (seconds_waited_for_peers() < 0.05 || seconds_waited_for_peers() > 10) _exit(2);
  });
}

}  // namespace whereabouts_test
}  // namespace espalier
