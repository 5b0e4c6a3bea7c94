// A rank that is slower than the rest: named once, and again when it keeps up.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/format.h"
#include "tests/launch/launch_fixture.h"
#include "tests/launch/launcher_process.h"
#include "tests/support/planted_hang.h"

namespace espalier::test {
namespace straggler_test {

TEST(Straggler, ARankThatIsStoppedMostOfTheTimeIsNamedOnce) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 300, 5);
  const Words options =
      tiny_run(folder / "data") +
      Words{"--num-threads",   "1",           "--train-samples", "800000", "--global-batch-size", "64",
            "--eval-interval", "100000",      "--save-interval", "100000", "--log-interval",      "1000",
            "--save",          folder / "run"};
  const Shell run = shell(folder, kRank + std::string(R"(
    await() {  # await COMMAND: until it succeeds, for four minutes
      for attempt in {1..4800}; do "$@" && return; kill -0 $launcher || break; sleep 0.05; done
      echo "no: $*"; kill -TERM $launcher; exit 1
    }
    run=)") + shell_word(folder / "run") +
                                      "; espalier launch --hang-timeout 0 --nproc-per-node 2 train gpt" +
                                      command_line(options) + R"( 2>$run.log & launcher=$!
    await grep -qs '"step":20,' $run/metrics.jsonl
    slow=$(rank 1)
    while true; do kill -STOP $slow; sleep 0.009; kill -CONT $slow; sleep 0.003; done 2>/dev/null & duty=$!
    await grep -qs '"event":"straggler".*rank 1 on .* is slower than the rest' $run/events.jsonl
    sleep 3
    kill $duty; wait $duty; kill -CONT $slow
    await grep -qs '"event":"straggler".*rank 1 on .* keeps up with the rest again' $run/events.jsonl
    kill -TERM $launcher; wait $launcher; echo "launcher: $?")");
  const std::string log = read_file(folder / "run.log");
  const std::string events =
      std::filesystem::exists(folder / "run/events.jsonl") ? read_file(folder / "run/events.jsonl") : "";
  EXPECT_EQ(run.output, "launcher: 0\n") << run.errors << events;
  const std::string alert = "warning: rank 1 on ";
  EXPECT_NE(log.find(alert), std::string::npos) << log;
  EXPECT_NE(log.find(" % longer than that of ranks with the same work, over the last "), std::string::npos) << log;
  // One line an incident, however long it lasts: the next report about this rank is its end.
  std::vector<std::string> said;
  for (const std::string& line : split(events, '\n'))
    if (line.find("rank 1 on ") != std::string::npos) said.push_back(line);
  for (size_t at = 0; at < said.size(); ++at)
    EXPECT_NE(said[at].find(at % 2 == 0 ? "is slower than" : "keeps up"), std::string::npos) << events;
}

// Sleeps of a tenth of the time, in the thread that trains. How many steps it takes depends on the noise of this
// machine (the rule learns it: docs/launch.md), so that number is printed. Where other programs slow the other rank
// down as much, nothing is to be seen.
TEST(Straggler, ARankThatIsATenthSlowerIsNamed) {
  constexpr int kSleepMs = 12;
  constexpr auto kEvery = std::chrono::milliseconds(120);
  const TemporaryFolder folder;
  write_token_files(folder / "data", 300, 5);
  setenv("LD_PRELOAD", ESPALIER_PLANTED_FAULTS, 1);
  LauncherProcess run(folder / "log", Words{"--hang-timeout", "0", "--nproc-per-node", "2", "train", "gpt"} +
                                          tiny_run(folder / "data") +
                                          Words{"--num-threads",
                                                "1",
                                                "--train-samples",
                                                "800000",
                                                "--lr-decay-samples",
                                                "800000",
                                                "--num-layers",
                                                "4",
                                                "--hidden-size",
                                                "192",
                                                "--seq-length",
                                                "128",
                                                "--max-position-embeddings",
                                                "128",
                                                "--eval-interval",
                                                "100000",
                                                "--save-interval",
                                                "100000",
                                                "--log-interval",
                                                "1000",
                                                "--save",
                                                folder / "run"});
  unsetenv("LD_PRELOAD");
  const auto events = [&] {
    return std::filesystem::exists(folder / "run/events.jsonl") ? read_file(folder / "run/events.jsonl") : "";
  };
  ASSERT_TRUE(wait_until(180, [&] { return num_records(folder / "run") >= 50; })) << run.said();
  const size_t from = num_records(folder / "run");
  const pid_t slow = run.ranks().at(1);
  std::string seen;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(240);
       seen.find("rank 1 on ") == std::string::npos && std::chrono::steady_clock::now() < end;
       std::this_thread::sleep_for(kEvery)) {
    send_planted(slow, kSleepMs);
    seen = events();
  }
  const size_t steps = num_records(folder / "run") - from;
  const bool is_named = seen.find("rank 1 on ") != std::string::npos;
  run.send(SIGTERM);
  ASSERT_TRUE(wait_until(60, [&] { return !run.runs(); })) << run.said();
  if (!is_named && seen.find("rank 0 on ") != std::string::npos)
    GTEST_SKIP() << "other programs slow rank 0 down: " << seen;
  ASSERT_TRUE(is_named) << "not within " << steps << " steps: " << seen;
  const size_t at = seen.find("rank 1 on ");
  std::printf("named after %zu steps: %s\n", steps, seen.substr(at, seen.find('"', at) - at).c_str());
}

}  // namespace straggler_test
}  // namespace espalier::test
