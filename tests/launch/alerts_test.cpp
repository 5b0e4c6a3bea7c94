// `espalier launch --alert-command`: one alert for one incident, delivered although the command fails at first.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/file.h"
#include "tests/e2e/run_files.h"
#include "tests/launch/launch_fixture.h"

namespace espalier::test {
namespace alerts_test {

class LaunchedAlerts : public testing::Test {
 protected:
  LaunchedAlerts() { write_token_files(folder_ / "data", 300, 5); }

  std::string training(const Words& more) const {
    const std::string run = shell_word(folder_ / "run");
    return " train gpt" + command_line(tiny_run(folder_ / "data") + Words{"--num-threads", "1"} + more) +
           " --save-interval 2 --save " + run + " --load " + run + " 2>$folder/log ";
  }
  std::string preamble() const { return concat(kAwait, kRank, "folder=", shell_word(folder_.path()), "\n"); }
  // "incident of attempt N", in order.
  std::vector<std::string> alerts() const {
    std::vector<std::string> told;
    std::istringstream lines(read_file(folder_ / "alerts"));
    for (std::string line; std::getline(lines, line);) {
      const auto alert = nlohmann::json::parse(line);
      EXPECT_EQ(alert.at("run"), folder_ / "run");
      EXPECT_FALSE(alert.at("host").get<std::string>().empty());
      EXPECT_GT(alert.at("time").get<double>(), 1.7e9);
      EXPECT_FALSE(alert.at("detail").get<std::string>().empty());
      if (alert.at("incident") == "straggler") continue;  // of ranks that share a busy machine
      told.push_back(concat(alert.at("incident").get<std::string>(), " of attempt ", alert.at("attempt").get<int>()));
    }
    return told;
  }
  TemporaryFolder folder_;
};

// A rank is killed and one hangs, each in an attempt of its own. The command fails at its first try.
TEST_F(LaunchedAlerts, AreOneForEachIncident) {
  const Shell run = shell(folder_, preamble() + R"(espalier launch --nproc-per-node 2 --max-restarts 2 --alert-command '
        read -r alert; [ -e '$folder'/tried ] || { touch '$folder'/tried; exit 3; }; echo "$alert" >>'$folder'/alerts')" +
                                       training({"--train-samples", "800"}) + R"(& launcher=$!
    await grep -qs '"step":3,' $folder/run/metrics.jsonl
    kill -KILL $(rank 1)
    await grep -q 'restart 1 of 2' $folder/log
    lines=$(wc -l <$folder/run/metrics.jsonl)
    more() { [ $(wc -l <$folder/run/metrics.jsonl) -gt $((lines + 3)) ]; }
    await more
    kill -STOP $(rank 0)
    wait $launcher; echo "launcher: $?")");
  EXPECT_EQ(run.output, "launcher: 0\n") << run.errors << read_file(folder_ / "log");
  EXPECT_EQ(alerts(), (std::vector<std::string>{"failure of attempt 0", "hang of attempt 1"}))
      << read_file(folder_ / "log");
  const std::string events = read_file(folder_ / "run/events.jsonl");
  EXPECT_NE(events.find("\"event\":\"failure\""), std::string::npos) << events;
  EXPECT_NE(events.find("restart 1 of 2 follows"), std::string::npos) << events;
}

// What the ranks write counts, too, and what nobody writes is passed over; a run without incidents gives none, and one
// that ends says so.
TEST_F(LaunchedAlerts, TellWhatRanksWriteAndThatARunHasEnded) {
  const std::string command = "espalier launch --nproc-per-node 1 --alert-command 'cat >>'$folder'/alerts' ";
  const Shell run = shell(folder_, preamble() + "touch $folder/alerts; " + command +
                                       training({"--train-samples", "80000", "--exit-interval", "10"}) +
                                       R"(; echo "launcher: $?"; wc -l <$folder/alerts;
    )" + command + training({"--train-samples", "80000"}) +
                                       R"(& launcher=$!
    await grep -qs '"step":13,' $folder/run/metrics.jsonl
    echo '{"time":1,"event":7,"step":null,"detail":"no line of a run"}' >>$folder/run/events.jsonl
    echo '{"time":1,"event":"save failed","step":12,"detail":"step 12: the disk is full"}' >>$folder/run/events.jsonl
    echo '{"time":1,"event":"save failed","step":14,"detail":"step 14: the disk is full"}' >>$folder/run/events.jsonl
    await grep -q 'save failed' $folder/alerts
    kill -KILL $(rank 0)
    wait $launcher; echo "launcher: $?")");
  EXPECT_EQ(run.output, "launcher: 0\n0\nlauncher: 137\n") << run.errors << read_file(folder_ / "log");
  EXPECT_EQ(alerts(), (std::vector<std::string>{"save failed of attempt 0", "failure of attempt 0"}));
  EXPECT_NE(read_file(folder_ / "alerts").find("the run has ended"), std::string::npos);
}

// No file of its can grow, so that it cannot even say why: what it learnt since is lost.
TEST_F(LaunchedAlerts, TellThatARunThatWasToldToStopCouldNotSave) {
  const Shell run =
      shell(folder_, preamble() + "espalier launch --nproc-per-node 1 --alert-command 'cat >>'$folder'/alerts' " +
                         training({"--train-samples", "8000000", "--lr-decay-samples", "8000000"}) + R"(& launcher=$!
    await grep -qs '"step":3,' $folder/run/metrics.jsonl
    prlimit --pid $(rank 0) --fsize=100
    kill -TERM $launcher
    wait $launcher; echo "launcher: $?")");
  EXPECT_EQ(run.output, "launcher: 143\n") << run.errors << read_file(folder_ / "log");
  const std::vector<std::string> told = alerts();
  EXPECT_EQ(std::count(told.begin(), told.end(), "failure of attempt 0"), 1) << read_file(folder_ / "alerts");
  EXPECT_NE(read_file(folder_ / "alerts").find("told to stop, rank 0 on "), std::string::npos);
  EXPECT_NE(read_file(folder_ / "run/events.jsonl").find("failed (exit code 74); the run has ended"),
            std::string::npos);
}

// No machine comes in the place of one that was lost; then the machine of the rendezvous store is lost.
TEST_F(LaunchedAlerts, TellThatMachinesDoNotComeAndThatTheStoreIsGone) {
  const int port = 20000 + static_cast<int>(std::random_device{}() % 9000);
  const auto machine = [&](int number, const std::string& alerts) {
    return concat("env ESPALIER_JOB_SECRET=one espalier launch --nnodes 2 --node-rank ", number,
                  " --nproc-per-node 1 --master-addr 127.0.0.1 --master-port ", port,
                  " --max-restarts 3 --rdzv-conf join_timeout=6 --alert-command 'cat >>'$folder'/", alerts, "' ") +
           "train gpt" +
           command_line(tiny_run(folder_ / "data") + Words{"--num-threads", "1", "--train-samples", "8000000",
                                                           "--lr-decay-samples", "8000000", "--save-interval", "100000",
                                                           "--save", folder_ / "run", "--load", folder_ / "run"}) +
           concat(" 2>>$folder/log", number);
  };
  const Shell run = shell(folder_, preamble() + "touch $folder/log0 $folder/log1\n" + machine(0, "alerts") +
                                       " & first=$!\n" + machine(1, "alerts1") + R"( & second=$!
    await grep -qs '"step":3,' $folder/run/metrics.jsonl
    kill -KILL $second
    wait $first; echo "first: $?"
    rm -r $folder/run
    )" + machine(0, "none") + " & first=$!\n" +
                                       machine(1, "alerts1") +
                                       R"( & second=$!
    await grep -qs '"step":3,' $folder/run/metrics.jsonl
    kill -KILL $first
    wait $second; echo "second: $?")");
  EXPECT_EQ(run.output, "first: 69\nsecond: 69\n")
      << run.errors << read_file(folder_ / "log0") << read_file(folder_ / "log1");
  EXPECT_EQ(alerts(), (std::vector<std::string>{"failure of attempt 0", "failure of attempt 1"}));
  EXPECT_NE(read_file(folder_ / "alerts").find("only 1 of 2 machines came within"), std::string::npos);
  const std::string lost = read_file(folder_ / "alerts1");
  EXPECT_EQ(std::count(lost.begin(), lost.end(), '\n'), 1) << lost;
  EXPECT_NE(lost.find("lost the rendezvous store"), std::string::npos) << lost;
  EXPECT_NE(read_file(folder_ / "run/events.jsonl").find("lost the rendezvous store"), std::string::npos);
}

TEST_F(LaunchedAlerts, ThatNobodyTakesAreAnEventOfTheRun) {
  const Shell run = shell(folder_, preamble() + "espalier launch --nproc-per-node 1 --alert-command 'exit 9'" +
                                       training({"--train-samples", "80000"}) + R"(& launcher=$!
    await grep -qs '"step":3,' $folder/run/metrics.jsonl
    kill -KILL $(rank 0)
    wait $launcher; echo "launcher: $?"
    espalier launch --nproc-per-node 1 --alert-command true train gpt --num-layers 1; echo "launcher: $?"
    espalier launch --no-python --alert-command true ls; echo "launcher: $?")");
  EXPECT_EQ(run.output, "launcher: 137\nlauncher: 2\nlauncher: 2\n") << run.errors << read_file(folder_ / "log");
  EXPECT_NE(read_file(folder_ / "run/events.jsonl").find("\"event\":\"alert not delivered\""), std::string::npos);
  EXPECT_NE(read_file(folder_ / "log").find("--alert-command did not accept an alert (exit code 9)"),
            std::string::npos);
}

}  // namespace alerts_test
}  // namespace espalier::test
