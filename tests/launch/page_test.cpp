// espalier launch --page: the run in a browser, from the launcher, while its ranks train and while they hang.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/launch/launch_fixture.h"

namespace espalier::test {
namespace page_test {

class LaunchedPage : public testing::Test {
 protected:
  std::string training(const std::string& save) const {
    return "train gpt" +
           command_line(tiny_run(folder_ / "data") + Words{"--num-threads", "1", "--train-samples", "80000"}) +
           (save.empty() ? "" : " --save-interval 1000 --save " + shell_word(folder_ / save));
  }
  TemporaryFolder folder_;
};

TEST_F(LaunchedPage, ShowsTheRunWhileItsRanksHang) {
  write_token_files(folder_ / "data", 300, 5);
  const Shell run = shell(folder_, R"(
    get() {  # get PATH: the body of the reply
      exec 3<>"/dev/tcp/127.0.0.1/$port"
      printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' "$1" >&3
      sed '1,/^\r$/d' <&3
    }
    await() {  # await COMMAND: until it succeeds, for a minute
      for attempt in {1..1200}; do "$@" && return; sleep 0.05; done
      echo "no: $*"; exit 1
    }
    folder=)" + shell_word(folder_.path()) +
                                       R"(
    espalier launch --page --nproc-per-node 2 )" +
                                       training("run") + R"( 2>$folder/log & launcher=$!
    await grep -q 'http://127' $folder/log
    address=$(grep -o 'http://127[^ ]*' $folder/log)
    port=${address#http://127.0.0.1:} secret=/${port#*/} port=${port%%/*}
    await grep -qs '"step":3,' $folder/run/metrics.jsonl
    ranks=$(cat /proc/$launcher/task/*/children)
    kill -STOP $ranks
    get "${secret}api/runs" >$folder/hanging.json; get "$secret" >$folder/page.html
    kill -CONT $ranks
    kill -TERM $launcher; wait $launcher; echo "launcher: $?"
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && echo "still there")");
  EXPECT_EQ(run.output, "launcher: 0\n") << run.errors << read_file(folder_ / "log");
  const auto runs = nlohmann::json::parse(read_file(folder_ / "hanging.json"));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0]["folder"], folder_ / "run");
  EXPECT_GE(runs[0]["step"].get<int>(), 3);
  EXPECT_NE(read_file(folder_ / "page.html").find("page.js"), std::string::npos);
}

TEST_F(LaunchedPage, WhatCannotBeShownIsRefusedBeforeARankStarts) {
  write_token_files(folder_ / "data", 300, 5);
  const Shell no_folder = shell(folder_, "espalier launch --page --nproc-per-node 2 " + training(""));
  EXPECT_EQ(no_folder.exit_code, 2);
  EXPECT_NE(no_folder.errors.find("give --save FOLDER"), std::string::npos) << no_folder.errors;
  const Shell other = shell(folder_, "espalier launch --page --no-python ls");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.errors.find("--page belongs to a training run"), std::string::npos) << other.errors;
  const Shell without = shell(folder_, "espalier launch --page-port 3 --nproc-per-node 2 " + training("run"));
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_NE(without.errors.find("--page-port belongs to --page, which is not given"), std::string::npos)
      << without.errors;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

}  // namespace page_test
}  // namespace espalier::test
