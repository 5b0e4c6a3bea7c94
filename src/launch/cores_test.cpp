#include "launch/cores.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <numeric>
#include <set>

#include "base/format.h"

namespace espalier::launch {
namespace {

std::vector<int> cores(int count) {
  std::vector<int> list(count);
  std::iota(list.begin(), list.end(), 100);
  return list;
}

TEST(Cores, EveryCoreGoesToOneRankAndSharesAreNearlyEqual) {
  for (const int num_cores : {1, 2, 7, 16, 33})
    for (int num_ranks = 2; num_ranks <= num_cores; ++num_ranks) {
      std::multiset<int> given;
      for (int rank = 0; rank < num_ranks; ++rank) {
        const CoreShare share = share_of_cores(cores(num_cores), rank, num_ranks);
        EXPECT_EQ(share.num_threads, static_cast<int>(share.cpus.size()));
        EXPECT_GE(share.num_threads, num_cores / num_ranks);
        EXPECT_LE(share.num_threads, num_cores / num_ranks + 1);
        given.insert(share.cpus.begin(), share.cpus.end());
      }
      const std::vector<int> all = cores(num_cores);
      EXPECT_EQ(std::vector<int>(given.begin(), given.end()), all) << num_cores << " cores, " << num_ranks << " ranks";
    }
}

TEST(Cores, ASingleRankTakesAllAndIsNotBound) {
  const CoreShare share = share_of_cores(cores(7), 0, 1);
  EXPECT_EQ(share.num_threads, 7);
  EXPECT_TRUE(share.cpus.empty());
}

TEST(Cores, MoreRanksThanCoresHaveOneThreadEachAndAreNotBound) {
  const CoreShare share = share_of_cores(cores(2), 7, 8);
  EXPECT_EQ(share.num_threads, 1);
  EXPECT_TRUE(share.cpus.empty());
}

TEST(Cores, TheUsersNumberOfThreadsIsKept) {
  setenv("OMP_NUM_THREADS", "3", 1);
  const CoreShare share =
      share_of_cores(RankEnvironment{.rank = 1, .world_size = 2, .local_rank = 1, .local_world_size = 2});
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(share.num_threads, 3);
  EXPECT_TRUE(share.cpus.empty());
}

TEST(Cores, SlurmsBoundTasksKeepTheirCores) {
  unsetenv("OMP_NUM_THREADS");
  const RankEnvironment place{.kind = LaunchKind::kSlurm, .world_size = 2, .local_world_size = 2};
  const int all = share_of_cores(RankEnvironment{}).num_threads;
  setenv("SLURM_CPU_BIND_TYPE", "mask_cpu:", 1);
  EXPECT_EQ(share_of_cores(place).num_threads, all);
  setenv("SLURM_CPU_BIND_TYPE", "none", 1);
  EXPECT_EQ(share_of_cores(place).num_threads, std::max(1, all / 2));
  unsetenv("SLURM_CPU_BIND_TYPE");
}

class CpuQuota : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "espalier-quota-XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void put(const std::filesystem::path& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::filesystem::path root_;
};

TEST_F(CpuQuota, IsTheTightestGroupAbove) {
  put("proc/self/cgroup", "0::/pod/container\n");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  put("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  put("sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 2.5);
  put("sys/fs/cgroup/pod/container/cpu.max", "700000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 2.5);
}

// In a container the path is the host's, and what it sees as the mount is its own group.
TEST_F(CpuQuota, OfAContainerIsAtTheMount) {
  put("proc/self/cgroup", "0::/kubepods/7f\n");
  put("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 1.5);
}

TEST_F(CpuQuota, OfVersionOneAsWell) {
  put("proc/self/cgroup", "4:memory:/other\n7:cpu,cpuacct:/job\n3:cpuset:/\n");
  put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(cpu_quota(root_), 0.5);
}

using FreeCores = CpuQuota;

TEST_F(FreeCores, AreThoseThatOtherProgramsLeave) {
  const auto with = [&](int64_t num_running) {
    put("proc/stat",
        concat("cpu  9 0 9 9\ncpu0 3 0 3 3\ncpu1 3 0 3 3\ncpu2 3 0 3 3\ncpu3 3 0 3 3\nintr 12 0\nprocs_running ",
               num_running, "\nprocs_blocked 0\n"));
  };
  with(1);  // this process itself
  EXPECT_TRUE(has_free_cores(4, root_));
  EXPECT_FALSE(has_free_cores(5, root_));
  with(2);
  EXPECT_FALSE(has_free_cores(4, root_));
  EXPECT_TRUE(has_free_cores(3, root_));
  with(9);
  EXPECT_FALSE(has_free_cores(1, root_));
}

TEST_F(FreeCores, AreAssumedWhereTheSystemDoesNotSay) {
  EXPECT_TRUE(has_free_cores(64, root_));
  put("proc/stat", "cpu  9 0 9 9\nprocs_running\n");
  EXPECT_TRUE(has_free_cores(64, root_));
}

}  // namespace
}  // namespace espalier::launch
