#include "launch/step_sequence.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"

namespace espalier::launch {
namespace step_sequence_test {

namespace fs = std::filesystem;

class StepSequence : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path at(const std::string& name) const { return folder_ / name; }
  // Makes `name`, and notes in "ran" that it ran.
  CommandStep shell(const std::string& name, const std::string& script, std::vector<std::string> after = {}) const {
    CommandStep step;
    step.name = name;
    step.command = {"sh", "-c", "cd " + folder_.string() + "; echo " + name + " >>ran; " + script};
    step.after = std::move(after);
    step.outputs = {at(name)};
    return step;
  }
  std::vector<CommandStep> chain(const std::string& seed) const {
    return {shell("seed", "echo " + seed + " >seed"), shell("double", "cat seed seed >double", {"seed"}),
            shell("other", "echo x >other")};
  }
  std::string ran() {
    const std::string names = fs::exists(at("ran")) ? read_file(at("ran")) : "";
    fs::remove(at("ran"));
    return names;
  }

  const fs::path folder_ = fs::temp_directory_path() / concat("espalier_steps_", ::getpid());
};

TEST_F(StepSequence, WhatIsDoneIsNotDoneAgainAndWhatChangesIsWithAllThatReadsIt) {
  EXPECT_TRUE(run_steps(folder_, chain("1")));
  EXPECT_EQ(ran(), "seed\ndouble\nother\n");
  EXPECT_TRUE(run_steps(folder_, chain("1")));
  EXPECT_EQ(ran(), "");
  EXPECT_TRUE(run_steps(folder_, chain("2")));
  EXPECT_EQ(ran(), "seed\ndouble\n");
  EXPECT_EQ(read_file(at("double")), "2\n2\n");
  std::vector<CommandStep> steps = chain("2");
  steps[2].inputs = "another file";
  EXPECT_TRUE(run_steps(folder_, steps));
  EXPECT_EQ(ran(), "other\n");
  fs::remove(at("seed"));
  EXPECT_TRUE(run_steps(folder_, steps));
  EXPECT_EQ(ran(), "seed\n") << "a missing output is made again; what was made from the same stays";
}

TEST_F(StepSequence, AFailedStepEndsAllWithItsExitCodeAndIsWhereTheNextRunGoesOn) {
  std::vector<CommandStep> steps = chain("1");
  steps[1] = shell("double", "[ -e ready ] || exit 66; echo done >double", {"seed"});
  try {
    run_steps(folder_, steps);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(static_cast<int>(error.code()), 66);
    EXPECT_STREQ(error.what(),
                 "step double ended with exit code 66. What is done is kept: the same command goes on from here.");
  }
  EXPECT_EQ(ran(), "seed\ndouble\n");
  write_file_atomically(at("ready"), "");
  EXPECT_TRUE(run_steps(folder_, steps));
  EXPECT_EQ(ran(), "double\nother\n");
}

TEST_F(StepSequence, ASignalReachesTheCommandWhichIsAskedToGoOnLater) {
  CommandStep step = shell("slow", "trap 'echo half >part; exit 0' TERM; : >begun; while :; do sleep 0.01; done");
  step.outputs = {at("part")};
  step.unfinished = [&] { return read_file(at("part")) == "half\n" ? "half of it is done" : ""; };
  step.resume = [&] { return shell("rest", "echo whole >part").command; };
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run_steps(folder_, {step}) ? 0 : 42);
  while (!fs::exists(at("begun"))) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(child, SIGTERM);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_EQ(read_file(at("part")), "half\n");
  EXPECT_TRUE(run_steps(folder_, {step}));
  EXPECT_EQ(ran(), "slow\nrest\n");
  EXPECT_TRUE(run_steps(folder_, {step}));
  EXPECT_EQ(ran(), "");
}

// A command that puts its output in place and is killed before anybody notes it; one that prints is asked anew.
TEST_F(StepSequence, WhatWasJustDoneWhenAllWasKilledCounts) {
  CommandStep whole = shell("whole", "echo w >whole"), printed = shell("printed", "echo p");
  printed.standard_output = at("printed");
  EXPECT_TRUE(run_steps(folder_, {whole, printed}));
  EXPECT_EQ(ran(), "whole\nprinted\n");
  auto record = nlohmann::json::parse(read_file(at("steps.json")));
  for (auto& [name, step] : record.items()) step["done"] = false;
  write_file_atomically(at("steps.json"), record.dump());
  EXPECT_TRUE(run_steps(folder_, {whole, printed}));
  EXPECT_EQ(ran(), "printed\n");
  EXPECT_EQ(read_file(at("printed")), "p\n");
}

TEST_F(StepSequence, WhatNoStepHasMadeIsNotReplaced) {
  write_file_atomically(at("double"), "mine");
  EXPECT_THROW(run_steps(folder_, chain("1")), UserError);
  EXPECT_EQ(ran(), "");
  EXPECT_EQ(read_file(at("double")), "mine");
  write_file_atomically(at("steps.json"), R"({"seed": 1})");
  EXPECT_THROW(run_steps(folder_, chain("1")), UserError);
}

TEST_F(StepSequence, TimeIsExpectedInProportionToTheAmountsOfAKind) {
  std::vector<CommandStep> steps(4);
  std::vector<StepState> states(4);
  const double amounts[] = {10, 20, 60, 5};
  for (size_t i = 0; i < 4; ++i) steps[i].kind = i == 3 ? "train" : "write", steps[i].amount = amounts[i];
  EXPECT_EQ(expected_seconds(steps, states, 2), std::nullopt);
  states[0] = {.kind = StepState::Kind::kDone, .seconds = 4};
  states[1] = {.kind = StepState::Kind::kDone, .seconds = 11};
  EXPECT_EQ(expected_seconds(steps, states, 2), 30);
  EXPECT_EQ(expected_seconds(steps, states, 3), std::nullopt);
}

}  // namespace step_sequence_test
}  // namespace espalier::launch
