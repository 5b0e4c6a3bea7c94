#include "launch/restart_policy.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace espalier::launch {
namespace restart_policy_test {

Failure ended(int64_t rank, int64_t step, int exit_code, int signal = 0) {
  Failure failure;
  failure.rank = failure.local_rank = rank;
  failure.host = rank < 2 ? "alpha" : "beta";
  failure.pid = 1000 + step;
  failure.exit_code = exit_code, failure.signal = signal;
  failure.phase = "train", failure.step = step;
  return failure;
}
Failure killed(int64_t rank, int64_t step) { return ended(rank, step, 0, SIGKILL); }

TEST(RestartPolicy, WhatCameFromOutsideSaysNothingAgainstTheStateInMemory) {
  EXPECT_TRUE(is_from_outside(killed(0, 3)));
  EXPECT_TRUE(is_from_outside(ended(0, 3, 0, SIGTERM)));
  EXPECT_TRUE(is_from_outside(ended(0, 3, 69))) << "it lost a peer";
  for (const int own : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) EXPECT_FALSE(is_from_outside(ended(0, 3, 0, own)));
  EXPECT_FALSE(is_from_outside(ended(0, 3, 17))) << "weights that are not finite";
  EXPECT_FALSE(is_from_outside(ended(0, 3, 1)));
  Failure machine = ended(0, 0, 1);
  machine.lost_machine = true;
  EXPECT_TRUE(is_from_outside(machine));

  RestartPolicy policy(9);
  EXPECT_TRUE(policy.decide(killed(0, 3)).trusts_memory);
  EXPECT_FALSE(policy.decide(ended(1, 9, 1)).trusts_memory);
}

TEST(RestartPolicy, AnErrorThatComesAgainAtTheSameStepEndsTheRunWhicheverRankTellsIt) {
  RestartPolicy policy(9);
  EXPECT_TRUE(policy.decide(ended(1, 17, 65)).starts_again);
  const RestartDecision second = policy.decide(ended(0, 17, 65));
  EXPECT_FALSE(second.starts_again);
  ASSERT_EQ(second.alike.size(), 2u);
  EXPECT_EQ(second.alike[0].rank, 1);
  EXPECT_EQ(second.alike[1].rank, 0);
}

// A machine in the place of another may lack a file or memory; or what it loads from memory is what ends it.
TEST(RestartPolicy, AnErrorBeforeTrainingIsFirstTriedWithTheStateInMemoryAndThenWithoutIt) {
  for (const char* phase : {"start", "load"}) {
    RestartPolicy policy(9);
    Failure failure = ended(2, 0, 1);
    failure.phase = phase;
    EXPECT_TRUE(policy.decide(killed(0, 17)).trusts_memory);
    const RestartDecision first = policy.decide(failure), second = policy.decide(failure),
                          third = policy.decide(failure);
    EXPECT_TRUE(first.starts_again && first.trusts_memory) << phase;
    EXPECT_TRUE(second.starts_again && !second.trusts_memory) << phase;
    EXPECT_FALSE(third.starts_again) << phase;
    EXPECT_EQ(third.alike.size(), 3u) << phase;
  }
}

// Its folder is another job's: that is not tried again. After a failure the holder may be the start before.
TEST(RestartPolicy, AFolderThatIsInUseEndsAFirstStartAtOnce) {
  Failure refused = ended(0, 0, 73);
  refused.phase = "load";
  RestartPolicy policy(9);
  const RestartDecision first = policy.decide(refused);
  EXPECT_TRUE(first.is_refused);
  EXPECT_FALSE(first.starts_again);
  EXPECT_TRUE(first.alike.empty()) << "no page of a fault that came again";
  RestartPolicy later(9);
  later.decide(killed(1, 17));
  EXPECT_TRUE(later.decide(refused).starts_again);
  Failure in_training = ended(0, 17, 73);
  EXPECT_TRUE(RestartPolicy(9).decide(in_training).starts_again);
}

TEST(RestartPolicy, ErrorsThatDifferAreNoRepetition) {
  RestartPolicy policy(9);
  EXPECT_TRUE(policy.decide(ended(1, 17, 65)).starts_again);
  EXPECT_TRUE(policy.decide(ended(1, 18, 65)).starts_again) << "another step";
  EXPECT_TRUE(policy.decide(ended(1, 18, 74)).starts_again) << "another code";
  EXPECT_TRUE(policy.decide(killed(1, 18)).starts_again);
  EXPECT_TRUE(policy.decide(ended(1, 18, 74)).starts_again) << "not twice in a row";
  EXPECT_FALSE(policy.decide(ended(1, 18, 74)).starts_again);
}

TEST(RestartPolicy, ARankThatIsKilledAtTheSamePlaceIsTriedFiveTimesEachAfterALongerWait) {
  RestartPolicy policy(99);
  std::vector<double> waits;
  RestartDecision decision;
  do {
    decision = policy.decide(killed(1, 17));
    waits.push_back(decision.wait_seconds);
  } while (decision.starts_again);
  EXPECT_EQ(waits, (std::vector<double>{0, 1, 2, 4, 0}));
  EXPECT_EQ(decision.alike.size(), 5u);
}

TEST(RestartPolicy, TheWaitGrowsToAMinuteAndEndsWithAStepGained) {
  RestartPolicy policy(99);
  policy.decide(killed(0, 17));
  double longest = 0;
  for (int64_t number = 1; number < 12; ++number) longest = policy.decide(killed(number % 4, 17)).wait_seconds;
  EXPECT_EQ(longest, 60);
  EXPECT_EQ(policy.decide(killed(0, 18)).wait_seconds, 0);
  EXPECT_EQ(policy.decide(killed(0, 17)).wait_seconds, 1) << "step 18 was under way before";
}

TEST(RestartPolicy, RestartsAreBoundedSinceAStepWasGained) {
  RestartPolicy policy(2);
  for (int64_t step = 1; step < 100; ++step) {
    const RestartDecision decision = policy.decide(killed(0, step));
    EXPECT_TRUE(decision.starts_again) << step;
    EXPECT_EQ(decision.restart, 1);
  }
  EXPECT_EQ(policy.decide(killed(1, 99)).restart, 2);
  const RestartDecision last = policy.decide(killed(0, 98));
  EXPECT_FALSE(last.starts_again);
  EXPECT_TRUE(last.alike.empty());
  EXPECT_FALSE(RestartPolicy(0).decide(killed(0, 5)).starts_again);
}

// A launcher that was not there goes on from what another has left; `alone` is asked throughout.
TEST(RestartPolicy, GoesOnFromItsHistoryAsIfItHadSeenAllItself) {
  Failure hung = killed(1, 17);
  hung.message = "the run hangs";
  Failure elsewhere = ended(0, 0, 1), machine = ended(3, 0, 1), other_program = ended(1, 0, 9);
  elsewhere.phase = "load";
  machine.lost_machine = true;
  machine.phase = other_program.phase = "";
  const std::vector<std::vector<Failure>> runs = {
      {killed(1, 17), killed(1, 17), killed(1, 17), killed(1, 17), killed(1, 17)},
      {killed(1, 17), elsewhere, elsewhere, elsewhere},
      {killed(0, 3), machine, killed(1, 3), killed(0, 4), ended(1, 17, 65), machine, ended(1, 17, 65),
       ended(0, 17, 65)},
      {other_program, other_program, killed(2, 5), other_program, killed(2, 5), killed(2, 4)},
      {hung, hung, hung, hung, hung},
      {ended(1, 9, 0, SIGSEGV), ended(0, 9, 0, SIGSEGV), ended(0, 9, 0, SIGSEGV)}};
  for (const std::vector<Failure>& run : runs) {
    RestartPolicy alone(7);
    std::string history;
    for (size_t at = 0; at < run.size(); ++at) {
      SCOPED_TRACE(at);
      RestartPolicy later(7, history);
      const RestartDecision wanted = alone.decide(run[at]), found = later.decide(run[at]);
      EXPECT_EQ(found.starts_again, wanted.starts_again);
      EXPECT_EQ(found.restart, wanted.restart);
      EXPECT_EQ(found.trusts_memory, wanted.trusts_memory);
      EXPECT_EQ(found.wait_seconds, wanted.wait_seconds);
      ASSERT_EQ(found.alike.size(), wanted.alike.size());
      if (!wanted.alike.empty()) {
        EXPECT_EQ(cause_page(found.alike, "/runs/a"), cause_page(wanted.alike, "/runs/a"));
      }
      history = later.history();
      if (wanted.starts_again) {
        EXPECT_EQ(RestartPolicy(7, history).restart(), wanted.restart);
      }
    }
  }
}

TEST(RestartPolicy, ItsHistoryStaysShortWhateverRanksSayAndHoweverOftenTheyFail) {
  RestartPolicy policy(1000);
  Failure failure = killed(1, 17), unknown = ended(1, 0, 3);
  failure.message = failure.last_lines = unknown.message = unknown.last_lines = std::string(1 << 20, 'x');
  unknown.phase.clear();
  for (int64_t number = 0; number < 4; ++number) EXPECT_TRUE(policy.decide(failure).starts_again);
  EXPECT_LT(policy.history().size(), 2000u);
  for (int64_t number = 0; number < 500; ++number) EXPECT_TRUE(policy.decide(unknown).starts_again);
  EXPECT_LT(policy.history().size(), 2000u);
}

// The others may be so many that the next failure is at a lower number, or before any step.
TEST(RestartPolicy, RanksThatHaveSavedAndStartWithOthersHaveGainedSteps) {
  RestartPolicy policy(2);
  EXPECT_EQ(policy.decide(killed(0, 17)).restart, 1);
  EXPECT_EQ(policy.decide(killed(1, 15)).restart, 2);
  EXPECT_EQ(policy.restart(), 2);
  policy.gain();
  EXPECT_EQ(policy.restart(), 0);
  const RestartDecision decision = policy.decide(killed(0, 15));
  EXPECT_TRUE(decision.starts_again);
  EXPECT_EQ(decision.restart, 1);
  EXPECT_EQ(decision.wait_seconds, 1);
}

TEST(RestartPolicy, AnErrorThatComesAgainEndsTheRunAlsoIfOthersWereTakenInMeanwhile) {
  RestartPolicy policy(9);
  EXPECT_TRUE(policy.decide(ended(1, 17, 65)).starts_again);
  policy.gain();
  EXPECT_FALSE(RestartPolicy(9, policy.history()).decide(ended(0, 17, 65)).starts_again);
}

// Nothing is known of where another program was.
TEST(RestartPolicy, RanksThatDoNotSayWhereTheyAreAreNotJudged) {
  RestartPolicy policy(50);
  Failure failure = ended(0, 0, 3);
  failure.phase.clear();
  for (int64_t number = 0; number < 50; ++number) {
    const RestartDecision decision = policy.decide(failure);
    EXPECT_TRUE(decision.starts_again);
    EXPECT_EQ(decision.wait_seconds, 0);
  }
}

TEST(RestartPolicy, ThePageOfAnErrorNamesTheStepAndHowToLookAtIt) {
  Failure first = ended(1, 1017, 65), second = ended(2, 1017, 65);
  first.message = second.message = "data/a.bin: id 70000 of 50304";
  second.last_lines = "reading";
  const std::string page = cause_page({first, second}, "/runs/a b");
  for (const char* part :
       {"the same fault came 2 times", "rank 1 on alpha, process 2017: exit code 65\n",
        "Its last message\n  data/a.bin: id 70000 of 50304\n", "the same place: phase train, step 1,017",
        "another rank each time: 1, 2", "another host each time: alpha, beta", "The last lines of its stderr\nreading",
        "espalier data who --run '/runs/a b' --step 1017", "espalier replay --load '/runs/a b' --step 1017",
        "--skip-train-iteration-range 1017-1017"})
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
  EXPECT_LT(std::count(page.begin(), page.end(), '\n'), 50) << "one page";
}

TEST(RestartPolicy, ThePageBlamesNoDataWhereNothingWasTrained) {
  Failure failure = ended(0, 0, 66);
  failure.phase = "load";
  failure.message = "data/a.idx: there is no such file";
  const std::string page = cause_page({failure, failure, failure}, "/runs/a");
  EXPECT_NE(page.find("before a step was trained: the options, the files"), std::string::npos) << page;
  for (const char* part : {"the data of that step", "data who", "--skip-train", "from the checkpoint on disk"})
    EXPECT_EQ(page.find(part), std::string::npos) << part << "\n" << page;
}

TEST(RestartPolicy, ThePageOfAHungRankSaysWhoEndedIt) {
  Failure hung = killed(3, 7);
  hung.message = "the run hangs: rank 3 has stopped";
  const std::string page = cause_page(std::vector<Failure>(5, hung), "/runs/a");
  for (const char* part : {"signal 9, SIGKILL, by the launcher, as the rank hung", "/runs/a/stacks_*.txt"})
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
  EXPECT_EQ(page.find("outside the run"), std::string::npos) << page;
}

TEST(RestartPolicy, ThePageOfAKilledRankNamesItsHost) {
  const std::string page = cause_page(std::vector<Failure>(5, killed(3, 7)), "");
  for (const char* part : {"the same fault came 5 times", "signal 9, SIGKILL", "the same rank: 3",
                           "the same host: beta", "--exclude beta", "out of memory"})
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
}

}  // namespace restart_policy_test
}  // namespace espalier::launch
