#include "base/stop_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace espalier {
namespace stop_signals_test {

struct Ended {
  int exit_code = -1;  // 1000 and more: by that signal
  std::string said;
};

// Runs `body` in a process of its own, which then ends with its result.
Ended in_child(const std::function<int()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::_exit(body());
  }
  ::close(ends[1]);
  Ended ended;
  char buffer[4096];
  for (ssize_t count; (count = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    ended.said.append(buffer, static_cast<size_t>(count));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return ended;
}

TEST(StopSignals, EachIsHeardAndAcknowledgedWithWhatIsAwaited) {
  for (const auto& [number, name] :
       {std::pair(SIGTERM, "SIGTERM"), {SIGINT, "SIGINT"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}}) {
    const Ended ended = in_child([number = number, name = name] {
      const StopSignals signals;
      set_awaited("step 18 of 500");
      if (signals.received()) return 1;
      ::raise(number);
      return signals.received() == name ? 7 : 2;
    });
    EXPECT_EQ(ended.exit_code, 7);
    EXPECT_NE(ended.said.find(name), std::string::npos) << ended.said;
    EXPECT_NE(ended.said.find("step 18 of 500"), std::string::npos) << ended.said;
  }
}

TEST(StopSignals, TheThirdCtrlCEndsTheProcessTheSecondDoesNot) {
  const Ended two = in_child([] {
    const StopSignals signals;
    ::raise(SIGINT), ::raise(SIGINT);
    return 7;
  });
  EXPECT_EQ(two.exit_code, 7);
  EXPECT_NE(two.said.find("press Ctrl-C once more within two seconds"), std::string::npos) << two.said;
  const Ended three = in_child([] {
    const StopSignals signals;
    ::raise(SIGINT), ::raise(SIGINT), ::raise(SIGINT);
    return 7;
  });
  EXPECT_EQ(three.exit_code, 130);
  const Ended late = in_child([] {
    const StopSignals signals;
    ::raise(SIGINT), ::raise(SIGINT);
    ::usleep(2'100'000);
    ::raise(SIGINT);
    return 7;
  });
  EXPECT_EQ(late.exit_code, 7);
  const Ended ends_by_others = in_child([] {
    const StopSignals signals;
    for (int i = 0; i < 4; ++i) ::raise(SIGTERM);
    return 7;
  });
  EXPECT_EQ(ends_by_others.exit_code, 7);
}

TEST(StopSignals, NohupStaysAndSoDoesWhatWasSetBefore) {
  const Ended ended = in_child([] {
    ::signal(SIGHUP, SIG_IGN);
    {
      const StopSignals outer;
      {
        const StopSignals inner;
        ::raise(SIGHUP);
        if (inner.received()) return 1;
        ::raise(SIGTERM);
      }
      if (outer.received() != "SIGTERM") return 2;
    }
    ::raise(SIGTERM);  // as by default again
    return 3;
  });
  EXPECT_EQ(ended.exit_code, 1000 + SIGTERM);
}

TEST(StopSignals, WhatIsHeldBackArrivesWhenTheNextProgramListens) {
  const Ended ended = in_child([] {
    hold_stop_signals();
    ::raise(SIGTERM);
    const StopSignals signals;
    return signals.received() == "SIGTERM" ? 7 : 1;
  });
  EXPECT_EQ(ended.exit_code, 7);
}

TEST(StopSignals, OnlyTheFirstRankSpeaks) {
  const Ended ended = in_child([] {
    const StopSignals signals;
    acknowledge_signals(false);
    ::raise(SIGINT), ::raise(SIGINT), ::raise(SIGINT);
    return 7;
  });
  EXPECT_EQ(ended.exit_code, 130);
  EXPECT_EQ(ended.said, "");
}

}  // namespace stop_signals_test
}  // namespace espalier
