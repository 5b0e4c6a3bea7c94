#include "launch/machine_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"

namespace espalier::launch {
namespace machine_memory_test {

namespace fs = std::filesystem;

class MachineMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "espalier-memory-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
    put("proc/meminfo", "MemTotal:       24000 kB\nMemFree:  3 kB\nMemAvailable:   20000 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void put(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  fs::path root_;
};

TEST_F(MachineMemory, WithoutLimitsIsWhatTheKernelHas) {
  put("proc/self/cgroup", "0::/user\n");
  put("sys/fs/cgroup/user/memory.max", "max\n");
  put("sys/fs/cgroup/user/memory.current", "5\n");
  EXPECT_EQ(machine_memory(root_).available_bytes, 20000 * 1024);
  EXPECT_EQ(machine_memory(root_).source, "MemAvailable of /proc/meminfo");
}

TEST_F(MachineMemory, IsTheTightestGroupAbove) {
  put("proc/self/cgroup", "0::/job/step\n");
  put("sys/fs/cgroup/job/step/memory.max", "max\n");
  put("sys/fs/cgroup/job/step/memory.current", "700\n");
  put("sys/fs/cgroup/job/memory.max", "10000\n");
  put("sys/fs/cgroup/job/memory.current", "4000\n");
  put("sys/fs/cgroup/job/memory.stat", "anon 900\ninactive_file 2000\nactive_file 1000\n");
  EXPECT_EQ(machine_memory(root_).available_bytes, 10000 - (4000 - 3000));
  EXPECT_NE(machine_memory(root_).source.find("sys/fs/cgroup/job"), std::string::npos);
}

TEST_F(MachineMemory, OfVersionOneAsWell) {
  put("proc/self/cgroup", "7:cpu,cpuacct:/job\n4:memory:/job\n");
  put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9000\n");
  put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "8500\n");
  put("sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 100\ntotal_active_file 0\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "8500\n");
  EXPECT_EQ(machine_memory(root_).available_bytes, 600);
}

TEST_F(MachineMemory, IsNoGuessWhereTheKernelDoesNotSay) {
  put("proc/meminfo", "MemTotal: 24000 kB\n");
  EXPECT_THROW(machine_memory(root_), UserError);
}

TEST(ThisMachine, HasSome) { EXPECT_GT(machine_memory().available_bytes, int64_t{1} << 20); }

}  // namespace machine_memory_test
}  // namespace espalier::launch
