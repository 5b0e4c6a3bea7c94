// Commands that watch runs for a run: once for each occasion, one at a time, again where they fail.
#include "watch/chores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "watch/heartbeat.h"

namespace espalier::watch {
namespace {

namespace fs = std::filesystem;

class ChoresTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  // Until one has ended.
  std::vector<ChoreEnd> wait(Chores& chores, double now) const {
    for (int tries = 0; tries < 1000; ++tries) {
      auto ended = chores.look(now);
      if (!ended.empty()) return ended;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return {};
  }
  Chore shell(const std::string& name, const std::string& command) const {
    return {
        .name = name, .run = "/runs/a", .command = {"sh", "-c", command}, .log = (folder_ / (name + ".log")).string()};
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  const fs::path folder_ = fs::temp_directory_path() / concat("espalier_chores_test_", ::getpid());
};

TEST_F(ChoresTest, RunOnceForEachOccasion) {
  Chores chores;
  chores.add(shell("backup", "echo x >>" + file("done")));
  chores.want("backup", "/runs/a", 100, 0);
  ASSERT_EQ(wait(chores, 0).size(), 1u);
  EXPECT_TRUE(chores.is_done("backup", "/runs/a", 100));
  chores.want("backup", "/runs/a", 100, 1);
  EXPECT_TRUE(chores.look(1).empty());
  EXPECT_TRUE(chores.look(1).empty());
  chores.want("backup", "/runs/a", 200, 2);
  ASSERT_EQ(wait(chores, 2).size(), 1u);
  EXPECT_EQ(read_file(file("done")), "x\nx\n");
}

TEST_F(ChoresTest, WhatFailsIsTriedAgainLaterAndSaysWhy) {
  Chores chores(/*again_seconds=*/600);
  chores.add(shell("backup", "[ -e " + file("well") + " ] || { echo the disk is full >&2; exit 7; }"));
  chores.want("backup", "/runs/a", 1, 0);
  ASSERT_EQ(wait(chores, 0).size(), 1u);
  ASSERT_EQ(chores.troubles().size(), 1u);
  EXPECT_EQ(chores.troubles()[0].incident, "backup failed");
  EXPECT_NE(chores.troubles()[0].detail.find("exit code 7, the disk is full"), std::string::npos)
      << chores.troubles()[0].detail;
  chores.want("backup", "/runs/a", 1, 10);
  EXPECT_TRUE(chores.look(599).empty());  // not yet
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(chores.look(599).empty());
  write_file_atomically(file("well"), "");
  EXPECT_EQ(wait(chores, 600).size(), 1u);
  EXPECT_TRUE(chores.troubles().empty());
}

TEST(Heartbeat, ThatStopsIsMissedByTheLookersOwnClock) {
  HeartbeatWatch watch;
  EXPECT_EQ(watch.look(std::nullopt, 0), "");  // nobody has ever watched
  Heartbeat heart{.host = "alpha", .pid = 7, .beat = 1, .interval_seconds = 30, .has_ended = false};
  EXPECT_EQ(watch.look(heart, 1000), "");
  EXPECT_EQ(watch.look(std::nullopt, 1089), "");
  EXPECT_NE(watch.look(heart, 1090).find("process 7 on alpha"), std::string::npos);
  ++heart.beat;
  EXPECT_EQ(watch.look(heart, 5000), "");
  heart.has_ended = true, ++heart.beat;
  EXPECT_EQ(watch.look(heart, 6000), "");
  EXPECT_EQ(watch.look(heart, 1e6), "");
}

}  // namespace
}  // namespace espalier::watch
