// Commands that watch runs for a run: once for each occasion, one at a time, again where they fail.
#include "watch/chores.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
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

// No byte more fits into any file.
class NoRoom {
 public:
  NoRoom() : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit none = before_;
    none.rlim_cur = 0;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  }
  ~NoRoom() {
    (void)::setrlimit(RLIMIT_FSIZE, &before_);
    (void)std::signal(SIGXFSZ, signal_);
  }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;

 private:
  void (*signal_)(int);
  rlimit before_{};
};

// The file on a full disk is as it was, and touched.
TEST_F(ChoresTest, AHeartThatCannotBeWrittenStillBeats) {
  Heartbeat heart{.host = "alpha", .pid = 7, .beat = 1, .interval_seconds = 30, .has_ended = false};
  fs::create_directories(watch_folder(folder_));
  write_heartbeat(folder_, heart);
  const auto first = read_heartbeat(folder_);
  ASSERT_TRUE(first);
  HeartbeatWatch watch;
  EXPECT_EQ(watch.look(first, 0), "");
  ++heart.beat;
  {
    const NoRoom full;
    EXPECT_THROW(write_heartbeat(folder_, heart), UserError);
  }
  const auto second = read_heartbeat(folder_);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->beat, first->beat);
  EXPECT_EQ(watch.look(second, 100), "");
  EXPECT_NE(watch.look(second, 200), "");
}

}  // namespace
}  // namespace espalier::watch
