#include "launch/internal/oom_kills.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>

#include "launch/failure.h"

namespace espalier::launch {
namespace oom_kills_test {

namespace fs = std::filesystem;

class OomKills : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "espalier-oom-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(root_); }
  void put(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  fs::path root_;
};

TEST_F(OomKills, AreThoseOfTheInnermostGroup) {
  EXPECT_EQ(internal::num_oom_kills(root_), 0) << "no control groups at all";
  put("proc/self/cgroup", "0::/job/step\n");
  put("sys/fs/cgroup/job/memory.events", "low 0\nhigh 2\nmax 9\noom 5\noom_kill 4\noom_group_kill 0\n");
  EXPECT_EQ(internal::num_oom_kills(root_), 4);
  put("sys/fs/cgroup/job/step/memory.events", "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\n");
  EXPECT_EQ(internal::num_oom_kills(root_), 1);
}

TEST_F(OomKills, AreReadFromTheFirstVersionToo) {
  put("proc/self/cgroup", "4:memory:/job\n0::/\n");
  put("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
  EXPECT_EQ(internal::num_oom_kills(root_), 7);
}

TEST(FailureOfMemory, IsSaidAndGoesToOtherMachines) {
  Failure failure;
  failure.signal = SIGKILL;
  EXPECT_EQ(describe(failure), "signal 9, SIGKILL");
  failure.lacked_memory = true;
  EXPECT_EQ(describe(failure), "signal 9, SIGKILL: out of memory, as the kernel says of this control group");
  EXPECT_TRUE(failures_from_json(to_json({failure})).at(0).lacked_memory);
}

}  // namespace oom_kills_test
}  // namespace espalier::launch
