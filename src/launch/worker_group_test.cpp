#include "launch/worker_group.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "launch/environment.h"

namespace espalier::launch {
namespace worker_group_test {

Worker shell_worker(const std::string& command) {
  Worker worker;
  worker.command = {"sh", "-c", command};
  worker.variables = process_variables();
  return worker;
}

void await_end(WorkerGroup& group) {
  for (int look = 0; look < 2000 && group.num_running() > 0; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    group.reap();
  }
}

// A launcher runs its ranks beside the command of an alert, a rank an evaluation beside an export.
TEST(WorkerGroup, LeavesTheEndsOfOtherGroupsToThem) {
  for (const int code : {0, 7}) {
    WorkerGroup other({shell_worker("exit " + std::to_string(code))});
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it has ended, and nobody has asked yet
    {
      WorkerGroup brief({shell_worker("true")});
      await_end(brief);
      EXPECT_EQ(brief.num_running(), 0);
    }
    await_end(other);
    EXPECT_EQ(other.num_running(), 0);
    EXPECT_EQ(other.any_failed(), code != 0);
    if (code != 0) {
      EXPECT_EQ(exit_code_of(other.failures().front()), code);
    }
  }
}

// What its processes leave behind is killed with them and leaves no zombie.
TEST(WorkerGroup, BuriesTheOrphansOfItsSessions) {
  char name[] = "/tmp/espalier-orphan-XXXXXX";
  const int descriptor = mkstemp(name);
  ASSERT_GE(descriptor, 0);
  close(descriptor);
  {
    WorkerGroup group({shell_worker("sh -c 'echo $$ >" + std::string(name) + "; exec sleep 1000' & sleep 0.2")});
    await_end(group);
    EXPECT_EQ(group.num_running(), 0);
  }
  pid_t orphan = 0;
  std::ifstream(name) >> orphan;
  unlink(name);
  ASSERT_GT(orphan, 0);
  EXPECT_EQ(kill(orphan, 0), -1) << "process " << orphan << " is still there";
}

}  // namespace worker_group_test
}  // namespace espalier::launch
