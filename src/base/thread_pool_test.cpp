#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <stdexcept>

#include "base/error.h"
#include "base/progress.h"

namespace espalier {
namespace {

TEST(ThreadPool, EveryTaskRunsOnceAndExceptionsComeBack) {
  std::atomic<int64_t> sum = 0;
  std::vector<std::future<int64_t>> results;
  {
    ThreadPool pool(7);
    EXPECT_EQ(pool.num_threads(), 7);
    for (int64_t task = 0; task < 1001; ++task) {
      results.push_back(pool.submit([&sum, task] {
        sum += task;
        if (task == 500) throw std::runtime_error("task 500");
        return 3 * task;
      }));
    }
  }
  EXPECT_EQ(sum, 500'500);
  for (int64_t task = 0; task < 1001; ++task) {
    if (task == 500)
      EXPECT_THROW(results[500].get(), std::runtime_error);
    else
      EXPECT_EQ(results[static_cast<size_t>(task)].get(), 3 * task);
  }
}

// A user who may start no more threads; root may always, and so becomes somebody else first.
void forbid_threads() {
  const rlimit none = {1, 1};
  if (setrlimit(RLIMIT_NPROC, &none) != 0) std::_Exit(3);
  if (geteuid() == 0 && setuid(65534) != 0) std::_Exit(4);
}

TEST(ThreadPoolDeathTest, ThreadsThatCannotBeStartedAreAnErrorAndNoAbort) {
  const auto start = [] {
    forbid_threads();
    try {
      const ThreadPool pool(33);
    } catch (const UserError& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(17);
    }
    std::_Exit(5);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(17), "cannot start thread 1 of 33: .*ulimit -u");
}

TEST(ThreadPoolDeathTest, WorkGoesOnWhereProgressCannotBeShown) {
  const auto start = [] {
    forbid_threads();
    Progress progress("count", 100, Progress::Unit::kItems);
    progress.advance(100);
    progress.finish();
    std::_Exit(17);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(17), "no progress is shown for 'count': cannot start a thread");
}

}  // namespace
}  // namespace espalier
