// The launcher as a process, with ranks that are small shell scripts. Several machines are several launchers here.
#include "launch/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "launch/environment.h"
#include "launch/rendezvous_server.h"
#include "launch/secret.h"
#include "tests/support/long_version.h"

namespace espalier::launch {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A launcher in a process of its own, its output in files.
class Launched {
 public:
  Launched(const fs::path& folder, const std::string& name, const Words& words,
           const std::function<std::string(double)>& reason_to_end = {})
      : out_(folder / (name + ".out")), err_(folder / (name + ".err")) {
    std::fflush(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    const int out = open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int err = open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    int code = 1;
    try {
      const auto options = read_launch_options(words, process_variables());
      RankProgram program = {options->program, "the program", !options->runs_other_program};
      program.reason_to_end = reason_to_end;
      code = run_launcher(*options, program);
    } catch (const UserError& error) {
      log_line(LogLevel::kQuiet, concat("error: ", error.what()));
      code = static_cast<int>(error.code());
    }
    _exit(code);
  }
  ~Launched() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Launched(const Launched&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const { kill(pid_, signal); }
  // Its exit code, or 1000 + signal; -1 if it does not end in time.
  int wait(double seconds = 60) {
    const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) return -1;
      std::this_thread::sleep_for(5ms);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  std::string out() const { return content(out_); }
  std::string err() const { return content(err_); }

 private:
  fs::path out_, err_;
  pid_t pid_ = -1;
};

class Launcher : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    setenv("TMPDIR", folder_.c_str(), 1);
    setenv("XDG_CONFIG_HOME", (folder_ / "config").c_str(), 1);
    setenv("FOLDER", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("TMPDIR");
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("FOLDER");
    fs::remove_all(folder_);
  }
  // Options, then the script that each rank runs.
  Words words(Words options, const std::string& script) const {
    for (const char* word : {"--no-python", "bash", "-c"}) options.push_back(word);
    options.push_back(script);
    return options;
  }
  void wait_for_file(const std::string& name) const {
    for (int tries = 0; tries < 4000 && !fs::exists(folder_ / name); ++tries) std::this_thread::sleep_for(5ms);
    EXPECT_TRUE(fs::exists(folder_ / name)) << name;
  }
  int free_port() const {
    const RendezvousServer brief({.address = "127.0.0.1", .secret = "s"});
    return brief.port();
  }
  // Waits until the process is gone (a zombie of another parent counts as gone).
  static bool is_gone(pid_t pid) {
    for (int tries = 0; tries < 1000; ++tries) {
      const std::string stat = content(concat("/proc/", pid, "/stat"));
      const size_t name_end = stat.rfind(')');
      if (name_end == std::string::npos || stat[name_end + 2] == 'Z') return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  pid_t pid_in(const std::string& name) const { return std::atoi(content(folder_ / name).c_str()); }

  const fs::path folder_ = fs::temp_directory_path() / "espalier_launcher_test";
};

TEST_F(Launcher, RanksFindTheirPlace) {
  Launched launched(
      folder_, "l",
      words({"--nproc-per-node=3", "--rdzv-id=job7"},
            "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_RANK $ROLE_NAME "
            "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID $TORCHELASTIC_USE_AGENT_STORE "
            "$MASTER_ADDR $OMP_NUM_THREADS > $FOLDER/rank$RANK; [ $MASTER_PORT -gt 0 ]"));
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_EQ(content(folder_ / "rank0"), "0 0 3 3 0 1 0 default 0 0 job7 False 127.0.0.1 1\n");
  EXPECT_EQ(content(folder_ / "rank2"), "2 2 3 3 0 1 2 default 0 0 job7 False 127.0.0.1 1\n");
}

TEST_F(Launcher, OurRanksGetTheStoreAndTheSecret) {
  Launched launched(folder_, "l",
                    {"--nproc-per-node=2", "bash", "-c",
                     "[ ${#ESPALIER_JOB_SECRET} = 64 ] && [ $ESPALIER_LAUNCH = 1 ] && [ -z \"$OMP_NUM_THREADS\" ]"
                     " && exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT && read -N 16 -u 3 hello && [ \"$hello\" = "
                     "'espalier store 1' ]"});
  EXPECT_EQ(launched.wait(), 0) << launched.err();
}

TEST_F(Launcher, TeedLinesCarryAPrefixAndGoToFilesToo) {
  Launched launched(folder_, "l",
                    words({"--nproc-per-node=2", "--tee=3", "--log-dir", (folder_ / "logs").string(), "--rdzv-id=x"},
                          "echo ' iteration'; printf 'no end'; echo oops >&2"));
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  for (const char* line :
       {"[default0]: iteration\n", "[default1]: iteration\n", "[default0]:no end", "[default1]:no end"})
    EXPECT_NE(launched.out().find(line), std::string::npos) << launched.out();
  EXPECT_NE(launched.err().find("[default1]:oops\n"), std::string::npos) << launched.err();
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "logs"))
    if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), folder_ / "logs"));
  std::sort(files.begin(), files.end());
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].substr(0, 2), "x_");
  EXPECT_EQ(files[0].substr(10), "/attempt_0/0/stderr.log");
  EXPECT_EQ(content(folder_ / "logs" / files[1]), " iteration\nno end");
}

TEST_F(Launcher, RedirectsAndTheFilterKeepRanksSilent) {
  Launched launched(folder_, "l",
                    words({"--nproc-per-node=3", "-r", "1:1", "--local-ranks-filter=0,1"}, "echo from $RANK"));
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_EQ(launched.out(), "from 0\n");
}

TEST_F(Launcher, TheFirstFailureEndsAllAndItsCodeIsReturned) {
  const auto start = Clock::now();
  Launched launched(folder_, "l", words({"--nproc-per-node=3"}, "if [ $RANK = 1 ]; then exit 7; fi; sleep 100 & wait"));
  EXPECT_EQ(launched.wait(), 7);
  EXPECT_LT(Clock::now() - start, 20s);
  const std::string report = launched.err();
  EXPECT_NE(report.find("the program FAILED"), std::string::npos) << report;
  const std::string cause = report.substr(std::min(report.size(), report.find("Root Cause")));
  EXPECT_NE(cause.find("rank      : 1 (local_rank: 1)"), std::string::npos) << report;
  EXPECT_NE(cause.find("exitcode  : 7 (pid: "), std::string::npos) << report;
}

TEST_F(Launcher, AKilledRankIsTheCauseAlthoughOthersFailOfIt) {
  Launched launched(folder_, "l",
                    words({"--nproc-per-node=2"},
                          "if [ $RANK = 1 ]; then echo $$ > $FOLDER/pid1; kill -9 $$; fi;"
                          "while [ ! -s $FOLDER/pid1 ] || kill -0 $(cat $FOLDER/pid1) 2>/dev/null && ! grep -q "
                          "'State:.Z' /proc/$(cat $FOLDER/pid1)/status; do :; done; exit 69"));
  EXPECT_EQ(launched.wait(), 137) << launched.err();
  const std::string report = launched.err();
  EXPECT_NE(report.find("traceback : Signal 9 (SIGKILL) received by PID", report.find("Root Cause")), std::string::npos)
      << report;
}

TEST_F(Launcher, TheMessageOfARankIsInTheReport) {
  Launched launched(folder_, "l",
                    words({"--nproc-per-node=2"},
                          "if [ $RANK = 0 ]; then echo '{\"message\":{\"message\":\"data/x.bin is "
                          "missing\",\"extraInfo\":{\"timestamp\":\"1\"}}}'"
                          " > $TORCHELASTIC_ERROR_FILE; exit 66; fi; sleep 100"));
  EXPECT_EQ(launched.wait(), 66);
  EXPECT_NE(launched.err().find("traceback : data/x.bin is missing"), std::string::npos) << launched.err();
}

TEST_F(Launcher, ARankThatIgnoresTermIsKilledWithAllThatItStarted) {
  Launched launched(
      folder_, "l",
      words(
          {"--nproc-per-node=2", "--shutdown-timeout=0.5"},
          "if [ $RANK = 1 ]; then while [ ! -s $FOLDER/child ]; do sleep 0.01; done; exit 3; fi;"
          "trap '' TERM; sleep 1000 & echo $! > $FOLDER/child; echo $$ > $FOLDER/pid0; while true; do sleep 1; done"));
  EXPECT_EQ(launched.wait(), 3) << launched.err();
  EXPECT_TRUE(is_gone(pid_in("pid0")));
  EXPECT_TRUE(is_gone(pid_in("child")));
}

TEST_F(Launcher, RestartsTheWholeGroup) {
  Launched launched(folder_, "l",
                    words({"--nproc-per-node=2", "--max-restarts=3"},
                          "echo run $TORCHELASTIC_RESTART_COUNT >> $FOLDER/rank$RANK;"
                          "if [ $TORCHELASTIC_RESTART_COUNT -lt 2 ]; then if [ $RANK = 0 ]; then echo {} > "
                          "$TORCHELASTIC_ERROR_FILE; exit 5; fi; sleep 100; fi"));
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_EQ(content(folder_ / "rank0"), "run 0\nrun 1\nrun 2\n");
  EXPECT_EQ(content(folder_ / "rank1"), "run 0\nrun 1\nrun 2\n");
  EXPECT_NE(launched.err().find("starting 2 ranks again (restart 2 of 3)"), std::string::npos) << launched.err();
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_FALSE(entry.path().filename().string().starts_with("espalier_")) << "a temporary folder stays: " << entry;
}

// Exit code 2 of our own program: the options are wrong, and would be the next time.
TEST_F(Launcher, DoesNotStartAgainWhatWasRefused) {
  Words ours = words({"--max-restarts=2"}, "echo x >> $FOLDER/runs; exit 2");
  ASSERT_EQ(std::erase(ours, "--no-python"), 1u);
  Launched launched(folder_, "l", ours);
  EXPECT_EQ(launched.wait(), 2) << launched.err();
  EXPECT_EQ(content(folder_ / "runs"), "x\n");
}

TEST_F(Launcher, GivesUpAfterTheLastRestart) {
  Launched launched(folder_, "l", words({"--max-restarts=2"}, "echo x >> $FOLDER/runs; exit 9"));
  EXPECT_EQ(launched.wait(), 9) << launched.err();
  EXPECT_EQ(content(folder_ / "runs"), "x\nx\nx\n");
}

TEST_F(Launcher, RanksEndWithAKilledLauncher) {
  Launched launched(
      folder_, "l",
      words({"--nproc-per-node=2"}, "trap '' TERM HUP; echo $$ > $FOLDER/pid$RANK; while true; do sleep 1; done"));
  wait_for_file("pid0");
  wait_for_file("pid1");
  std::this_thread::sleep_for(50ms);
  launched.send(SIGKILL);
  EXPECT_EQ(launched.wait(), 1000 + SIGKILL);
  EXPECT_TRUE(is_gone(pid_in("pid0")));
  EXPECT_TRUE(is_gone(pid_in("pid1")));
}

TEST_F(Launcher, PassesTermOnAndEndsWellIfTheRanksDo) {
  Launched launched(folder_, "l",
                    words({"--nproc-per-node=2"},
                          "trap 'echo saved >> $FOLDER/rank$RANK; exit 0' TERM; echo > $FOLDER/ready$RANK; while true; "
                          "do sleep 0.05; done"));
  wait_for_file("ready0");
  wait_for_file("ready1");
  launched.send(SIGTERM);
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_EQ(content(folder_ / "rank0"), "saved\n");
  EXPECT_EQ(content(folder_ / "rank1"), "saved\n");
}

constexpr const char* kIgnoresInterrupts = "trap '' INT; echo $$ > $FOLDER/pid0; while true; do sleep 0.05; done";

TEST_F(Launcher, ASecondSignalAsksAndAThirdKills) {
  Launched launched(folder_, "l", words({"--nproc-per-node=1", "--max-restarts=5"}, kIgnoresInterrupts));
  wait_for_file("pid0");
  std::this_thread::sleep_for(50ms);
  launched.send(SIGINT);
  std::this_thread::sleep_for(300ms);
  launched.send(SIGINT);
  EXPECT_EQ(launched.wait(1), -1) << "the second signal lost the run";
  EXPECT_NE(launched.err().find("SIGINT once more within two seconds kills them"), std::string::npos) << launched.err();
  launched.send(SIGINT);
  EXPECT_EQ(launched.wait(10), 128 + SIGINT) << launched.err();
  EXPECT_TRUE(is_gone(pid_in("pid0")));
}

TEST_F(Launcher, ALateThirdSignalAsksAgain) {
  Launched launched(folder_, "l", words({"--nproc-per-node=1"}, kIgnoresInterrupts));
  wait_for_file("pid0");
  for (int time = 0; time < 3; ++time) {
    launched.send(SIGINT);
    EXPECT_EQ(launched.wait(2.2), -1) << launched.err();
  }
}

TEST_F(Launcher, OurRanksMaySaveLongerThanTheTimeAfterAFailure) {
  // The shell stands for training: it ends by itself, 32 seconds after it is told to, two more than a failure leaves.
  if (!test::long_version()) GTEST_SKIP() << "takes half a minute: scripts/test --all";
  Launched launched(folder_, "l",
                    {"--nproc-per-node=1", "bash", "-c",
                     "trap 'sleep 32; echo saved > $FOLDER/saved; exit 0' TERM; echo > $FOLDER/ready; while true; do "
                     "sleep 0.05; done"});
  wait_for_file("ready");
  launched.send(SIGTERM);
  EXPECT_EQ(launched.wait(60), 0) << launched.err();
  EXPECT_TRUE(fs::exists(folder_ / "saved"));
  EXPECT_NE(launched.err().find("still waiting for 1 rank"), std::string::npos) << launched.err();
}

TEST_F(Launcher, LeavesNoTemporaryFolder) {
  const auto folders = [&] {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().filename().string().starts_with("espalier_")) found.push_back(entry.path().filename());
    return found;
  };
  EXPECT_EQ(Launched(folder_, "well", words({"--nproc-per-node=2"}, "exit 0")).wait(), 0);
  EXPECT_EQ(folders(), std::vector<std::string>());
  Launched failed(folder_, "failed", words({"--nproc-per-node=1"}, "echo '{' > $TORCHELASTIC_ERROR_FILE; exit 3"));
  EXPECT_EQ(failed.wait(), 3);
  EXPECT_EQ(folders(), std::vector<std::string>());
  Launched killed(folder_, "killed", words({"--nproc-per-node=1"}, "echo $$ > $FOLDER/pid0; sleep 100"));
  wait_for_file("pid0");
  EXPECT_EQ(folders().size(), 1u);
  killed.send(SIGKILL);
  EXPECT_EQ(killed.wait(), 1000 + SIGKILL);
  EXPECT_EQ(folders().size(), 1u);
  // The next launcher removes it, and leaves alone what one that lives has.
  Launched lives(folder_, "lives", words({"--nproc-per-node=1"}, "echo $$ > $FOLDER/pid1; sleep 100"));
  wait_for_file("pid1");
  EXPECT_EQ(folders().size(), 1u);
  EXPECT_EQ(Launched(folder_, "next", words({"--nproc-per-node=1"}, "exit 0")).wait(), 0);
  EXPECT_EQ(folders().size(), 1u);
}

TEST_F(Launcher, PassesUsr1OnAndGoesOn) {
  Launched launched(folder_, "l",
                    words({"--nproc-per-node=2"},
                          "trap 'echo early > $FOLDER/early$RANK; exit 0' USR1; echo > $FOLDER/ready$RANK; while true; "
                          "do sleep 0.05; done"));
  wait_for_file("ready0");
  wait_for_file("ready1");
  launched.send(SIGUSR1);
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_TRUE(fs::exists(folder_ / "early0") && fs::exists(folder_ / "early1"));
}

TEST_F(Launcher, AProgramThatIsNotThereIsSaidOnce) {
  Launched launched(folder_, "l", {"--nproc-per-node=3", "--no-python", "no-such-program"});
  EXPECT_EQ(launched.wait(), 66);
  EXPECT_EQ(launched.err().find("error: cannot start no-such-program"), launched.err().rfind("error: "));
}

// Several machines.

TEST_F(Launcher, MachinesNumberThemselvesByName) {
  const std::string endpoint = concat("--rdzv-endpoint=127.0.0.1:", free_port());
  const std::string script = "echo $RANK/$WORLD_SIZE $GROUP_RANK > $FOLDER/$NODE.$LOCAL_RANK";
  const auto options = [&](const char* name, const char* ranks) {
    return Words{"--nnodes=2", ranks, "--rdzv-backend=c10d", endpoint, "--local-addr", name};
  };
  setenv("NODE", "beta", 1);
  Launched beta(folder_, "beta", words(options("beta", "--nproc-per-node=1"), script));
  setenv("NODE", "alpha", 1);
  Launched alpha(folder_, "alpha", words(options("alpha", "--nproc-per-node=2"), script));
  EXPECT_EQ(alpha.wait(), 0) << alpha.err();
  EXPECT_EQ(beta.wait(), 0) << beta.err();
  EXPECT_EQ(content(folder_ / "alpha.0"), "0/3 0\n");
  EXPECT_EQ(content(folder_ / "alpha.1"), "1/3 0\n");
  EXPECT_EQ(content(folder_ / "beta.0"), "2/3 1\n");
}

TEST_F(Launcher, StaticMachinesAreNumberedByFlag) {
  const std::string port = concat("--master-port=", free_port());
  Launched second(folder_, "b", words({"--nnodes=2", "--node-rank=1", port}, "echo $RANK > $FOLDER/second"));
  Launched first(folder_, "a", words({"--nnodes=2", "--node-rank=0", port}, "echo $RANK > $FOLDER/first"));
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_EQ(content(folder_ / "first"), "0\n");
  EXPECT_EQ(content(folder_ / "second"), "1\n");
}

class Machines : public Launcher {
 protected:
  Words at(const std::string& name, Words options, const std::string& script) const {
    for (const std::string& word : {std::string("--rdzv-backend=c10d"), endpoint_, std::string("--local-addr"), name})
      options.push_back(word);
    return words(options, script);
  }
  const std::string endpoint_ = concat("--rdzv-endpoint=127.0.0.1:", free_port());
};

TEST_F(Machines, AFailureOnOneStopsAllAndAllReturnItsCode) {
  const std::string script = "if [ $RANK = 1 ]; then exit 5; fi; sleep 100";
  Launched alpha(folder_, "a", at("alpha", {"--nnodes=2"}, script)),
      beta(folder_, "b", at("beta", {"--nnodes=2"}, script));
  EXPECT_EQ(alpha.wait(20), 5) << alpha.err();
  EXPECT_EQ(beta.wait(20), 5) << beta.err();
  EXPECT_NE(beta.err().find("Root Cause"), std::string::npos) << beta.err();
}

TEST_F(Machines, AllStartAgainTogether) {
  const std::string script =
      "echo $TORCHELASTIC_RESTART_COUNT >> $FOLDER/rank$RANK;"
      "if [ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ]; then exit 5; fi;"
      "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then sleep 100; fi";
  Launched alpha(folder_, "a", at("alpha", {"--nnodes=2", "--max-restarts=1"}, script));
  Launched beta(folder_, "b", at("beta", {"--nnodes=2", "--max-restarts=1"}, script));
  EXPECT_EQ(alpha.wait(20), 0) << alpha.err();
  EXPECT_EQ(beta.wait(20), 0) << beta.err();
  EXPECT_EQ(content(folder_ / "rank0"), "0\n1\n");
  EXPECT_EQ(content(folder_ / "rank1"), "0\n1\n");
}

TEST_F(Machines, AKilledLauncherIsNoticedAndNamed) {
  const std::string script = "echo > $FOLDER/ready$RANK; sleep 100";
  Launched alpha(folder_, "a", at("alpha", {"--nnodes=2"}, script));
  wait_for_file("a.err");
  std::this_thread::sleep_for(300ms);  // alpha hosts the rendezvous store
  Launched beta(folder_, "b", at("beta", {"--nnodes=2"}, script));
  wait_for_file("ready0");
  wait_for_file("ready1");
  beta.send(SIGKILL);
  EXPECT_EQ(alpha.wait(20), 1) << alpha.err();
  EXPECT_NE(alpha.err().find("the launcher on beta (pid"), std::string::npos) << alpha.err();
}

TEST_F(Machines, TheLossOfTheStoresHostStopsTheOthers) {
  const std::string script = "echo > $FOLDER/ready$RANK; echo $$ > $FOLDER/pid$RANK; sleep 100";
  Launched alpha(folder_, "a", at("alpha", {"--nnodes=2"}, script));
  std::this_thread::sleep_for(300ms);
  Launched beta(folder_, "b", at("beta", {"--nnodes=2"}, script));
  wait_for_file("pid0");
  wait_for_file("pid1");
  alpha.send(SIGKILL);
  EXPECT_EQ(beta.wait(20), 69) << beta.err();
  EXPECT_NE(beta.err().find("lost the rendezvous store"), std::string::npos) << beta.err();
  EXPECT_TRUE(is_gone(pid_in("pid1")));
}

// --exit-duration-in-mins: a job's time does not begin anew as its ranks do. What ranks know of it ...
TEST_F(Launcher, RanksThatAreStartedAgainKnowWhenTheLauncherWasStarted) {
  const std::string script =
      "echo $ESPALIER_LAUNCHED_AT >> $FOLDER/at; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || { sleep 0.5; exit 3; }";
  const int64_t before = Clock::now().time_since_epoch().count();
  Launched launched(folder_, "l", {"--max-restarts=1", "bash", "-c", script});
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  std::ifstream times(folder_ / "at");
  int64_t first = 0, second = 0;
  ASSERT_TRUE(times >> first >> second) << content(folder_ / "at");
  EXPECT_EQ(first, second);
  EXPECT_GT(first, before);
  EXPECT_LT(first, Clock::now().time_since_epoch().count() - 500'000'000);
}

// ... and what the launcher asks its rules by.
TEST_F(Launcher, TheTimeOfARunGoesOnAcrossRestarts) {
  const auto note_time = [this, last = 0.0](double seconds) mutable {
    if (seconds < last) std::ofstream(folder_ / "went_back") << last << " " << seconds;
    last = seconds;
    if (fs::exists(folder_ / "again")) std::ofstream(folder_ / "asked_again") << seconds;
    return std::string();
  };
  Launched launched(folder_, "l",
                    words({"--max-restarts=1"},
                          "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || { sleep 1.2; exit 3; };"
                          " echo > $FOLDER/again; while [ ! -e $FOLDER/asked_again ]; do sleep 0.02; done"),
                    note_time);
  EXPECT_EQ(launched.wait(), 0) << launched.err();
  EXPECT_FALSE(fs::exists(folder_ / "went_back")) << content(folder_ / "went_back");
}

// Its ranks have ended well, and whether the others' have nobody can tell any more.
TEST_F(Machines, ALostStoreIsSaidAlsoWhereTheRunWasToldToEnd) {
  const auto reason = [this](double) {
    return fs::exists(folder_ / "end") ? std::string("its time is up") : std::string();
  };
  const std::string script =
      "echo > $FOLDER/ready$RANK; while [ ! -e $FOLDER/end ] || [ $RANK = 0 ]; do sleep 0.02; done";
  Launched alpha(folder_, "a", at("alpha", {"--nnodes=2"}, script), reason);
  std::this_thread::sleep_for(300ms);  // alpha hosts the rendezvous store
  Launched beta(folder_, "b", at("beta", {"--nnodes=2"}, script), reason);
  wait_for_file("ready0");
  wait_for_file("ready1");
  std::ofstream(folder_ / "end") << "now";
  for (int tries = 0; tries < 2000 && beta.err().find("its time is up: waiting for") == std::string::npos; ++tries)
    std::this_thread::sleep_for(5ms);
  std::this_thread::sleep_for(500ms);  // until its rank has ended
  alpha.send(SIGKILL);
  EXPECT_EQ(beta.wait(20), static_cast<int>(ExitCode::kLostPeer)) << beta.err();
  EXPECT_NE(beta.err().find("lost the rendezvous store"), std::string::npos) << beta.err();
  EXPECT_EQ(beta.err().find("another machine's failed"), std::string::npos) << beta.err();
}

TEST_F(Machines, ARangeStartsWithTheFewestAfterTheLastCall) {
  const std::string script = "echo $WORLD_SIZE > $FOLDER/world$RANK";
  const Words options = {"--nnodes=2:3", "--rdzv-conf=last_call_timeout=0.5"};
  Launched alpha(folder_, "a", at("alpha", options, script)), beta(folder_, "b", at("beta", options, script));
  EXPECT_EQ(alpha.wait(20), 0) << alpha.err();
  EXPECT_EQ(beta.wait(20), 0) << beta.err();
  EXPECT_EQ(content(folder_ / "world0"), "2\n");
}

TEST_F(Machines, ALateMachineTakesPartInTheNextStart) {
  const std::string script =
      "echo $WORLD_SIZE >> $FOLDER/world$RANK; if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then"
      " while [ ! -e $FOLDER/fail ]; do sleep 0.02; done; exit 4; fi";
  const Words options = {"--nnodes=1:2", "--rdzv-conf=last_call_timeout=0.2", "--max-restarts=1"};
  Launched alpha(folder_, "a", at("alpha", options, script));
  wait_for_file("world0");
  Launched beta(folder_, "b",
                at("beta", {"--nnodes=1:2", "--rdzv-conf=last_call_timeout=5", "--max-restarts=1"}, script));
  for (int tries = 0; tries < 2000 && beta.err().find("waits for their next start") == std::string::npos; ++tries)
    std::this_thread::sleep_for(5ms);
  std::ofstream(folder_ / "fail") << "now";
  EXPECT_EQ(alpha.wait(30), 0) << alpha.err();
  EXPECT_EQ(beta.wait(30), 0) << beta.err();
  EXPECT_EQ(content(folder_ / "world0").substr(0, 2), "1\n");
}

TEST_F(Machines, OneThatWaitsHearsThatTheRunHasFailed) {
  const std::string script = "echo > $FOLDER/ready; while [ ! -e $FOLDER/fail ]; do sleep 0.02; done; exit 4";
  const Words options = {"--nnodes=1:2", "--rdzv-conf=last_call_timeout=0.2"};
  Launched alpha(folder_, "a", at("alpha", options, script));
  wait_for_file("ready");
  Launched beta(folder_, "b", at("beta", options, script));
  for (int tries = 0; tries < 2000 && beta.err().find("waits for their next start") == std::string::npos; ++tries)
    std::this_thread::sleep_for(5ms);
  std::ofstream(folder_ / "fail") << "now";
  EXPECT_EQ(alpha.wait(30), 4) << alpha.err();
  EXPECT_EQ(beta.wait(30), static_cast<int>(ExitCode::kLostPeer)) << beta.err();
  EXPECT_NE(beta.err().find("the run has ended while this machine waited"), std::string::npos) << beta.err();
}

TEST_F(Machines, AKilledMachineIsDoneWithoutWhereFewerAreEnough) {
  const std::string script =
      "echo $WORLD_SIZE >> $FOLDER/world$RANK; if [ $WORLD_SIZE = 2 ]; then echo > $FOLDER/ready$RANK; exec sleep 100; "
      "fi";
  const Words options = {"--nnodes=1:2", "--rdzv-conf=last_call_timeout=1"};
  Launched alpha(folder_, "a", at("alpha", options, script));
  std::this_thread::sleep_for(300ms);  // alpha hosts the rendezvous store
  Launched beta(folder_, "b", at("beta", options, script));
  wait_for_file("ready0");
  wait_for_file("ready1");
  beta.send(SIGKILL);
  EXPECT_EQ(alpha.wait(20), 0) << alpha.err();
  EXPECT_EQ(content(folder_ / "world0"), "2\n1\n");
}

TEST_F(Machines, SayWhoIsMissing) {
  Launched alpha(folder_, "a", at("alpha", {"--nnodes=2", "--rdzv-conf=join_timeout=4"}, "true"));
  EXPECT_EQ(alpha.wait(), static_cast<int>(ExitCode::kLostPeer));
  EXPECT_NE(alpha.err().find("waiting for 1 more machine (1 of 2 here: alpha): 1"), std::string::npos) << alpha.err();
  EXPECT_NE(alpha.err().find("so far, until "), std::string::npos) << alpha.err();
}

TEST_F(Launcher, AMachineWithoutAHostSaysWhomItAwaits) {
  const int port = free_port();
  Launched second(folder_, "s",
                  words({"--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", concat("--master-port=", port),
                         "--rdzv-conf=join_timeout=3"},
                        "true"));
  EXPECT_EQ(second.wait(), static_cast<int>(ExitCode::kLostPeer)) << second.err();
  EXPECT_NE(second.err().find(concat(
                "waiting for the launcher of --node-rank 0, whose rendezvous store is to be at 127.0.0.1:", port)),
            std::string::npos)
      << second.err();
}

TEST_F(Machines, TooFewMachinesEndTheWait) {
  Launched alpha(folder_, "a", at("alpha", {"--nnodes=2", "--rdzv-conf=join_timeout=0.5"}, "true"));
  EXPECT_EQ(alpha.wait(20), 69);
  EXPECT_NE(alpha.err().find("only 1 of 2 machines came within"), std::string::npos) << alpha.err();
}

TEST_F(Machines, AnotherSecretIsRefused) {
  Launched alpha(folder_, "a", at("alpha", {"--nnodes=2"}, "true"));
  std::this_thread::sleep_for(300ms);
  setenv(kSecretVariable, "another job's secret", 1);
  Launched beta(folder_, "b", at("beta", {"--nnodes=2"}, "true"));
  unsetenv(kSecretVariable);
  EXPECT_EQ(beta.wait(20), 1);
  EXPECT_NE(beta.err().find("the secrets differ"), std::string::npos) << beta.err();
  alpha.send(SIGTERM);
  EXPECT_EQ(alpha.wait(20), 143) << "the others were not disturbed: " << alpha.err();
}

TEST_F(Machines, TwoOfTheSameNumberAreRefused) {
  const std::string port = concat("--master-port=", free_port());
  Launched first(folder_, "a", words({"--nnodes=2", "--node-rank=0", port}, "true"));
  std::this_thread::sleep_for(300ms);
  Launched second(folder_, "b", words({"--nnodes=2", "--node-rank=0", port}, "true"));
  EXPECT_EQ(second.wait(20), 1);
  EXPECT_NE(second.err().find("Another program listens there"), std::string::npos) << second.err();
}

}  // namespace
}  // namespace espalier::launch
