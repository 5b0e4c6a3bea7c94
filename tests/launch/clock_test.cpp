// The machine's clock is set forward and back while a run trains: timeouts, watchdogs and alerts go by clocks that are
// not set, and nothing else notices either.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/launch/launch_fixture.h"

namespace espalier::test {
namespace clock_test {

class Clock : public testing::Test {
 protected:
  void SetUp() override { write_token_files(folder_ / "data", 300, 5); }
  std::string training(const std::string& save) const {
    return "train gpt" + command_line(tiny_run(folder_ / "data") + Words{"--save", folder_ / save, "--save-interval",
                                                                         "50", "--num-threads", "1", "--train-samples",
                                                                         "6000", "--lr-decay-samples", "4000"});
  }
  TemporaryFolder folder_;
};

TEST_F(Clock, SetForwardAndBackIsNoIncident) {
  const std::string launch =
      concat("espalier launch --nproc-per-node 2 --alert-command 'cat >> ", folder_ / "alerts", "' ");
  const Shell still = shell(folder_, launch + training("still"));
  ASSERT_EQ(still.exit_code, 0) << still.errors;
  const size_t num_steps = num_records(folder_ / "still");
  // Five times in the run: an hour on, a day back, a year on, back to what it was, a second back.
  const std::string moved_launch = concat("LD_PRELOAD=", ESPALIER_MOVED_CLOCK, " ", launch);
  const std::string script = concat(kAwait, R"sh(
    move() {  # move SECONDS: as 8 bytes, the lowest first
      local bytes=$(printf '%016x' $1 | sed 's/../\\x&\n/g' | tac | tr -d '\n')
      printf "$bytes" | dd of=$MOVED_CLOCK conv=notrunc status=none
    }
    seen() { LD_PRELOAD=$library date +%s; }
    steps() { [ "$(cat $run/metrics.jsonl 2>/dev/null | wc -l)" -ge $(($1 * all / 12)) ]; }
    move 0
    before=$(seen)
    $launch & launcher=$!
    await steps 1; move 3600; echo $(($(seen) - before))
    await steps 3; move -86400
    await steps 5; move 31536000
    await steps 7; move 0
    await steps 9; move -1
    wait $launcher)sh");
  const Shell moved = shell(folder_, concat("export MOVED_CLOCK=", folder_ / "offset", "; run=", folder_ / "moved",
                                            "; all=", num_steps, "; library=", ESPALIER_MOVED_CLOCK, "; train() { ",
                                            moved_launch, training("moved"), "; }; launch=train; ", script));
  ASSERT_EQ(moved.exit_code, 0) << moved.errors;
  EXPECT_NEAR(std::stod(moved.output), 3600, 120) << "the program saw the clock that was set";
  EXPECT_EQ(step_records(folder_ / "moved"), step_records(folder_ / "still"));
  // Other programs of a busy machine do slow ranks of 3 ms a step down.
  const auto is_of_other_programs = [](const std::string& line) { return line.find("straggler") != std::string::npos; };
  for (const char* file : {"alerts", "moved/events.jsonl"}) {
    if (!std::filesystem::exists(folder_ / file)) continue;
    for (const std::string& line : split(strip(read_file(folder_ / file)), '\n')) {
      if (is_of_other_programs(line)) continue;
      const std::string event = nlohmann::json::parse(line).value("event", "");
      EXPECT_TRUE(event == "start" || event == "stop" || event == "end") << line;
    }
  }
}

}  // namespace clock_test
}  // namespace espalier::test
