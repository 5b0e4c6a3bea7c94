#include "launch/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"

namespace espalier::launch {
namespace control_test {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Controlled : public testing::Test {
 protected:
  Controlled() {
    char name[] = "/tmp/espalier-control-test-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~Controlled() override { fs::remove_all(folder_); }

  // The page of two ranks, of which the first has begun and says where the run is.
  void begin(const std::string& folder) {
    const std::string variable = board_.variable(0);
    const pid_t pid = fork();
    if (pid == 0) {
      setenv(kWhereaboutsVariable, variable.c_str(), 1);
      open_whereabouts();
      note_run_folder(folder);
      set_phase(RunPhase::kTrain, 7);
      note_progress(2);
      new WaitsFor(Waiting::kPeers, "all-reduce", "data");
      _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
  }
  ControlOptions options(int64_t node = 0) {
    return {.board = board_,
            .node = node,
            .first_rank = 2 * node,
            .num_local_ranks = 2,
            .world_size = 4,
            .first_host = "alpha",
            .stop = [this] { ++num_stops_; },
            .kill = [this] { ++num_kills_; }};
  }
  static std::vector<ControlPlace> await_places(const std::string& folder) {
    for (int tries = 0; tries < 500; ++tries) {
      const std::vector<ControlPlace> places = control_places(folder);
      // A socket has its name a moment before somebody listens.
      if (!places.empty() && ask_control(places[0], {{"command", "status"}}, 10).outcome == ControlOutcome::kAnswered)
        return places;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return control_places(folder);
  }
  static ControlMessage ask(const ControlPlace& place, const ControlMessage& request) {
    const ControlReply reply = ask_control(place, request, 10);
    EXPECT_EQ(reply.outcome, ControlOutcome::kAnswered) << reply.trouble;
    return reply.message;
  }

  WhereaboutsBoard board_{2};
  std::string folder_;
  std::atomic<int> num_stops_ = 0, num_kills_ = 0;
};

TEST_F(Controlled, AnswersInTheRunsFolderOnceThereIsOne) {
  {
    Control control(options());
    control.set_pids({getpid(), -1});
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    EXPECT_TRUE(control_places(folder_).empty());
    begin(folder_);
    const auto places = await_places(folder_);
    ASSERT_EQ(places.size(), 1U);
    EXPECT_TRUE(places[0].is_here);
    EXPECT_EQ(places[0].node, 0);
    struct stat found = {};
    ASSERT_EQ(lstat(places[0].file.c_str(), &found), 0);
    EXPECT_TRUE(S_ISSOCK(found.st_mode));
    EXPECT_EQ(found.st_mode & 0777, 0600U);

    const ControlMessage status = ask(places[0], {{"command", "status"}});
    EXPECT_EQ(status["phase"], "train");
    EXPECT_EQ(status["step"], 7);
    EXPECT_EQ(status["paused"], false);
    EXPECT_EQ(status["world_size"], 4);
    ASSERT_EQ(status["ranks"].size(), 2U);
    EXPECT_EQ(status["ranks"][0]["rank"], 0);
    EXPECT_EQ(status["ranks"][0]["pid"], getpid());
    EXPECT_EQ(status["ranks"][0]["state"], "waits");
    EXPECT_EQ(status["ranks"][0]["waits_for"], "all-reduce of data");
    EXPECT_EQ(status["ranks"][0]["micro_batch"], 2);
    EXPECT_EQ(status["ranks"][1]["state"], "ended");
    EXPECT_TRUE(status["ranks"][1]["pid"].is_null());
  }
  EXPECT_TRUE(control_places(folder_).empty());
}

TEST_F(Controlled, CarriesWishesOut) {
  begin(folder_);
  Control control(options());
  control.set_pids({getpid(), getpid()});
  const auto places = await_places(folder_);
  ASSERT_EQ(places.size(), 1U);
  const auto say = [&](const ControlMessage& request) { return ask(places[0], request).dump(); };
  EXPECT_THAT(say({{"command", "save"}}), HasSubstr("saves after the step"));
  EXPECT_EQ(board_.wishes(0).num_saves, 1U);
  EXPECT_THAT(say({{"command", "pause"}}), HasSubstr("pause together"));
  EXPECT_THAT(say({{"command", "pause"}}), HasSubstr("already been asked to pause"));
  EXPECT_TRUE(board_.wishes(0).pause);
  EXPECT_EQ(ask(places[0], {{"command", "status"}})["paused"], true);
  EXPECT_THAT(say({{"command", "resume"}}), HasSubstr("the run continues"));
  EXPECT_THAT(say({{"command", "resume"}}), HasSubstr("not paused"));
  EXPECT_FALSE(board_.wishes(0).pause);
  EXPECT_THAT(say({{"command", "log-level"}, {"level", "debug"}}), HasSubstr("next step"));
  EXPECT_EQ(board_.wishes(0).log_level, LogLevel::kDebug);
  EXPECT_EQ(board_.wishes(1).num_saves, 0U) << "the first rank tells the others";
  say({{"command", "stop"}});
  say({{"command", "status"}});  // what is asked is done after its answer, and before the next
  EXPECT_EQ(num_stops_, 1);
  EXPECT_EQ(num_kills_, 0);
  say({{"command", "kill"}});
  say({{"command", "status"}});
  EXPECT_EQ(num_kills_, 1);
}

TEST_F(Controlled, RefusesWhatItCannotDo) {
  begin(folder_);
  Control control(options());
  control.set_pids({getpid(), getpid()});
  const auto places = await_places(folder_);
  ASSERT_EQ(places.size(), 1U);
  const auto refusal = [&](const ControlMessage& request) { return ask(places[0], request).value("error", ""); };
  EXPECT_THAT(refusal({{"command", "dance"}}), HasSubstr("no command dance"));
  EXPECT_THAT(refusal({{"command", "log-level"}, {"level", "loud"}}), HasSubstr("'loud' is not a level"));
  EXPECT_THAT(refusal({{"command", "log-level"}}), HasSubstr("'' is not a level"));
  EXPECT_THAT(refusal({{"command", 3}}), HasSubstr("names no command"));
  EXPECT_THAT(refusal(ControlMessage::array({"status"})), HasSubstr("names no command"));
  EXPECT_FALSE(board_.wishes(0).log_level);
  EXPECT_EQ(ask(places[0], {{"command", "status"}})["step"], 7) << "still answers";
}

TEST_F(Controlled, SomebodyWhoSaysNothingIsCutOff) {
  begin(folder_);
  Control control(options());
  control.set_pids({getpid(), getpid()});
  const auto places = await_places(folder_);
  ASSERT_EQ(places.size(), 1U);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  places[0].file.copy(address.sun_path, sizeof address.sun_path - 1);
  const int silent = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(connect(silent, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(ask(places[0], {{"command", "status"}})["step"], 7);
  close(silent);
}

TEST_F(Controlled, OfAnotherNodeTheWholeRunIsNotAsked) {
  begin(folder_);
  Control control(options(/*node=*/1));
  control.set_pids({getpid(), getpid()});
  const auto places = await_places(folder_);
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].node, 1);
  for (const char* command : {"save", "stop", "pause", "resume", "log-level"})
    EXPECT_THAT(ask(places[0], {{"command", command}}).value("error", ""), HasSubstr("ask on alpha")) << command;
  EXPECT_EQ(ask(places[0], {{"command", "status"}})["ranks"][1]["rank"], 3);
  EXPECT_EQ(num_stops_, 0);
}

TEST_F(Controlled, WhereThePathIsTooLongTheSocketLiesElsewhere) {
  const std::string deep = folder_ + "/" + std::string(90, 'd') + "/" + std::string(90, 'e');
  fs::create_directories(deep);
  begin(deep);
  std::string pointed;
  {
    Control control(options());
    control.set_pids({getpid(), getpid()});
    const auto places = await_places(deep);
    ASSERT_EQ(places.size(), 1U);
    ASSERT_TRUE(fs::is_regular_file(places[0].file));
    std::ifstream(places[0].file) >> pointed;
    EXPECT_TRUE(fs::is_socket(pointed)) << pointed;
    struct stat found = {};
    ASSERT_EQ(stat(pointed.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600U);
    EXPECT_EQ(ask(places[0], {{"command", "status"}})["step"], 7);
  }
  EXPECT_TRUE(control_places(deep).empty());
  EXPECT_FALSE(fs::exists(fs::path(pointed).parent_path()));
}

TEST_F(Controlled, ASocketThatIsLeftOverIsSaidAndReplaced) {
  begin(folder_);
  std::string file;
  {
    Control control(options());
    control.set_pids({getpid(), getpid()});
    file = await_places(folder_).at(0).file;
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  file.copy(address.sun_path, sizeof address.sun_path - 1);
  const int dead = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(dead, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  close(dead);
  EXPECT_EQ(ask_control({0, "", file, true}, {{"command", "status"}}, 5).outcome, ControlOutcome::kStale);
  Control control(options());
  control.set_pids({getpid(), getpid()});
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_EQ(ask({0, "", file, true}, {{"command", "status"}})["step"], 7);
}

}  // namespace control_test
}  // namespace espalier::launch
