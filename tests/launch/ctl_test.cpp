// espalier ctl: what is asked of a run while its ranks train, and while they hang.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/launch/launch_fixture.h"

namespace espalier::test {
namespace ctl_test {

class ControlledRun : public testing::Test {
 protected:
  std::string training(const std::string& save, const Words& more = {}) const {
    return "train gpt" +
           command_line(tiny_run(folder_ / "data") + Words{"--num-threads", "1", "--train-samples", "80000"} + more) +
           " --save-interval 100000 --save " + shell_word(folder_ / save);
  }
  std::string preamble() const {
    return kAwait + std::string(R"(
      stands() {  # the run makes no step
        before=$(wc -l <$run/metrics.jsonl); sleep 1; [ $before = $(wc -l <$run/metrics.jsonl) ]
      }
      trains() {  # RUN MACHINES: it has made three steps, and every machine answers, which takes up to 0.1 s
        grep -qs '"step":3,' $1/metrics.jsonl && [ $(compgen -G "$1/control.*" | wc -l) = $2 ]
      }
      saved() { compgen -G "$run/step_*/manifest.json" >/dev/null; }
      folder=)") +
           shell_word(folder_.path()) + " run=" + shell_word(folder_ / "run") + "\n";
  }
  TemporaryFolder folder_;
};

TEST_F(ControlledRun, IsSavedPausedResumedAndStopped) {
  write_token_files(folder_ / "data", 300, 5);
  const Shell run = shell(folder_, preamble() + "espalier launch --nproc-per-node 2 " + training("run") +
                                       R"( 2>$folder/log & launcher=$!
    await trains $run 1
    espalier ctl $run status --json >$folder/status.json; espalier ctl $run status
    espalier ctl $run save
    await saved
    espalier ctl $run pause
    await grep -q '"event":"pause"' $run/events.jsonl
    stands && echo stands
    espalier ctl $run status
    espalier ctl $run resume
    await grep -q '"event":"resume"' $run/events.jsonl
    stands || echo moves
    espalier ctl $run dump | grep -c 'rank.*main thread'
    espalier ctl $run stop
    wait $launcher; echo "launcher: $?"
    ls $run/control.* 2>/dev/null
    espalier ctl $run status; echo "ctl: $?")");
  const std::string everything = run.output + run.errors + read_file(folder_ / "log");
  const auto status = nlohmann::json::parse(read_file(folder_ / "status.json"));
  EXPECT_EQ(status["world_size"], 2);
  EXPECT_GE(status["step"].get<int>(), 3);
  ASSERT_EQ(status["ranks"].size(), 2U);
  EXPECT_GT(status["ranks"][1]["pid"].get<int>(), 1);
  EXPECT_NE(run.output.find("stands\nphase "), std::string::npos) << everything;
  EXPECT_NE(run.output.find(", paused or about to\n"), std::string::npos) << everything;
  EXPECT_NE(run.output.find("pause of the run\n"), std::string::npos) << everything;
  EXPECT_NE(run.output.find("moves\n"), std::string::npos) << everything;
  EXPECT_NE(run.output.find("launcher: 0\n"), std::string::npos) << everything;
  EXPECT_NE(run.output.find("ctl: 1\n"), std::string::npos) << everything;
  EXPECT_EQ(run.output.find("control."), std::string::npos) << everything;
  EXPECT_NE(run.errors.find("has ended: stopped, received SIGTERM"), std::string::npos) << everything;
  const std::string events = read_file(folder_ / "run/events.jsonl");
  EXPECT_NE(events.find("\"event\":\"save\""), std::string::npos) << events;
  EXPECT_EQ(events.find("\"event\":\"hang\""), std::string::npos) << events;
}

TEST_F(ControlledRun, AnswersWhileItsRanksHang) {
  write_token_files(folder_ / "data", 300, 5);
  const Shell run =
      shell(folder_, preamble() + "espalier launch --hang-timeout 60 --max-restarts 3 --nproc-per-node 2 " +
                         training("run") + R"( 2>$folder/log & launcher=$!
    await trains $run 1
    ranks=($(cat /proc/$launcher/task/*/children))
    kill -STOP ${ranks[1]}; sleep 0.5
    espalier ctl $run status
    espalier ctl $run dump 2>$folder/dump.err
    espalier ctl $run kill
    wait $launcher; echo "launcher: $?")");
  EXPECT_NE(run.output.find("stopped"), std::string::npos) << run.output << run.errors;
  EXPECT_NE(run.output.find("waits"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find(") is stopped (SIGSTOP, or a debugger) and cannot answer\n"), std::string::npos)
      << run.output;
  EXPECT_NE(run.output.find("espalier::dist::"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("launcher: 143\n"), std::string::npos) << "not started again: " << run.output;
  EXPECT_NE(read_file(folder_ / "dump.err").find("written to "), std::string::npos);
}

TEST_F(ControlledRun, WithoutALauncherAnswersToo) {
  write_token_files(folder_ / "data", 300, 5);
  const Shell run = shell(folder_, preamble() + "espalier " + training("run", {"--log-level", "warning"}) +
                                       R"( 2>$folder/log & trainer=$!
    await trains $run 1
    espalier ctl $run status --json
    espalier ctl $run log-level info
    await grep -q 'iteration ' $folder/log
    espalier ctl $run pause
    await grep -q '"event":"pause"' $run/events.jsonl
    stands && echo stands
    espalier ctl $run dump | head -1
    espalier ctl $run stop
    wait $trainer; echo "trainer: $?"; ls $run/control.* 2>/dev/null
    espalier )" + training("killed") + R"( 2>/dev/null & trainer=$!
    await trains $folder/killed 1
    espalier ctl $folder/killed kill
    wait $trainer; echo "trainer: $?"
    espalier ctl $folder/killed status; echo "ctl: $?")");
  const std::string everything = run.output + run.errors + read_file(folder_ / "log");
  const auto status = nlohmann::json::parse(run.output.substr(0, run.output.find('\n')));
  EXPECT_EQ(status["ranks"].size(), 1U);
  EXPECT_NE(run.output.find("stands\nrank 0, main thread\n"), std::string::npos) << everything;
  EXPECT_NE(run.output.find("trainer: 0\n"), std::string::npos) << everything;
  EXPECT_NE(run.output.find("trainer: 137\nctl: 1\n"), std::string::npos) << everything;
  EXPECT_NE(run.errors.find("has died"), std::string::npos) << everything;
}

TEST_F(ControlledRun, AskingChangesNothingOfWhatIsLearnt) {
  write_token_files(folder_ / "data", 300, 5);
  const Words length = {"--train-samples", "2400"};
  const Shell run =
      shell(folder_, preamble() + "espalier launch --nproc-per-node 2 " + training("run", length) +
                         R"( 2>$folder/log & launcher=$!
    await trains $run 1
    for time in {1..10}; do
      for command in dump status save pause status resume; do
        espalier ctl $run $command || exit
        [ $time$command != 1pause ] || await grep -q '"event":"pause"' $run/events.jsonl  # else it may end too soon
      done
    done >/dev/null
    wait $launcher; echo "launcher: $?"; grep -c '"event":"pause"' $run/events.jsonl
    espalier launch --nproc-per-node 2 )" +
                         training("straight", length) + " 2>/dev/null; espalier checkpoint diff $folder/straight $run");
  EXPECT_TRUE(run.output.starts_with("launcher: 0\n")) << run.output << run.errors;
  EXPECT_EQ(run.output.find("launcher: 0\n0\n"), std::string::npos) << "it was paused";
  EXPECT_NE(run.output.find("bitwise equal"), std::string::npos) << run.output << run.errors;
}

TEST_F(ControlledRun, OfSeveralMachinesIsAskedWhereItsFirstRankIs) {
  write_token_files(folder_ / "data", 300, 5);
  const auto machine = [&](int number) {
    return concat("espalier launch --nnodes 2 --node-rank ", number,
                  " --nproc-per-node 1 --master-addr 127.0.0.1 --master-port $port ", training("run"));
  };
  const Shell run = shell(folder_, preamble() + "port=$((20000 + RANDOM % 9000)); " + machine(1) +
                                       " 2>$folder/log1 & other=$!\n" + machine(0) + R"( 2>$folder/log & launcher=$!
    await trains $run 2
    ls $run | grep -o 'control\.[01]'
    espalier ctl $run status
    mv $run/control.0.* $folder/first
    espalier ctl $run status | tail -1
    espalier ctl $run pause; echo "ctl: $?"
    mv $folder/first $run/control.0.$(hostname)
    espalier ctl $run stop
    wait $launcher; echo "launcher: $?"; wait $other; echo "other: $?")");
  const std::string everything = run.output + run.errors + read_file(folder_ / "log");
  EXPECT_TRUE(run.output.starts_with("control.0\ncontrol.1\n")) << everything;
  EXPECT_NE(run.output.find("; 1 of 2 ranks are on this machine\n"), std::string::npos) << everything;
  EXPECT_NE(run.output.find("\n   1  "), std::string::npos) << everything;
  EXPECT_NE(run.output.find("ctl: 1\n"), std::string::npos) << everything;
  EXPECT_NE(run.errors.find("pause is for the whole run: ask on "), std::string::npos) << everything;
  EXPECT_NE(run.output.find("launcher: 0\nother: 0\n"), std::string::npos) << everything;
}

TEST_F(ControlledRun, WhatIsNoRunIsSaid) {
  const auto says = [&](const std::string& line, int code, const std::string& words) {
    const Shell asked = shell(folder_, "espalier ctl " + line);
    EXPECT_EQ(asked.exit_code, code) << line << asked.errors;
    EXPECT_NE(asked.errors.find(words), std::string::npos) << line << asked.errors;
  };
  const std::string here = shell_word(folder_.path());
  says(here + "/none status", 66, "there is no such folder");
  says(here + " status", 66, "is not a run folder");
  says(here + " statsu", 2, "did you mean status?");
  says(here + " log-level", 2, "log-level takes one of quiet, warning, info, debug");
  says(here + " stop now", 2, "stop takes no further argument: now");
  says(here, 2, "RUN COMMAND");
}

}  // namespace ctl_test
}  // namespace espalier::test
