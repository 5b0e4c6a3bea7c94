// --save-hf: Hugging Face folders made alongside a run.
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace espalier {
namespace save_hf_command_test {

class SaveHfCommand : public Command {
 protected:
  std::string train(const std::string& more) const {
    return concat(
        "espalier train gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 "
        "--max-position-embeddings 16 --micro-batch-size 2 --global-batch-size 4 --train-iters 7 --lr 1e-2 "
        "--split 90,10,0 --eval-iters 0 --num-threads 1 --save-interval 2 ",
        tiny_gpt_data(), more);
  }
};

TEST_F(SaveHfCommand, MakesWhatExportHfMakesOfTheSameCheckpoints) {
  const Outcome outcome = bash(concat(
      "set -e; export OMP_WAIT_POLICY=passive; ", train("--save run --save-hf 4; "), train("--save plain; "),
      "ls run/hf; espalier checkpoint diff run/step_00000007 plain/step_00000007; for step in 4 7; do "
      "espalier checkpoint export-hf --load plain --ckpt-step $step --output own --no-check-logits; "
      "diff -r own run/hf/step_0000000$step && echo same; rm -r own; done; grep -c '\"hf folder\"' run/events.jsonl"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.output.starts_with("step_00000004\nstep_00000007\n")) << outcome.output;
  EXPECT_NE(outcome.output.find("bitwise equal"), std::string::npos) << outcome.output;
  EXPECT_TRUE(outcome.output.ends_with("same\nsame\n2\n")) << outcome.output;
}

// Checkpoints that have no folder yet get one when the run continues; a folder of a later attempt is not taken for one
// of this run.
TEST_F(SaveHfCommand, MakesWhatAnEarlierAttemptHasLeftToDo) {
  const Outcome outcome = bash(
      concat("set -e; export OMP_WAIT_POLICY=passive; ", train("--save run --exit-interval 4 2>/dev/null; "),
             "mkdir -p run/hf/step_00000006; echo x >run/hf/step_00000006/config.json; ",
             train("--save run --load run --save-hf 2; "), "ls run/hf; head -c 1 run/hf/step_00000006/config.json"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "step_00000002\nstep_00000004\nstep_00000006\nstep_00000006.superseded\nstep_00000007\n{");
}

// Killed with its exporter at twelve moments from the first export on: each folder that is there is whole.
TEST_F(SaveHfCommand, AKillAtAnyMomentLeavesAWholeFolderOrNone) {
  const Outcome outcome = bash(concat(
      "set -e; export OMP_WAIT_POLICY=passive; ", train("--save plain 2>/dev/null; "),
      "for step in 2 4 6 7; do espalier checkpoint export-hf --load plain --ckpt-step $step --output "
      "own/step_0000000$step --no-check-logits 2>/dev/null; done\n"
      "check() { for made in run/hf/step_0000000?; do if [ -e $made ]; then diff -r $made own/${made#run/hf/} && "
      "echo whole; fi; done; }\n"
      "for round in 0 1 2 3 4 5 6 7 8 9 10 11; do rm -rf run\n",
      train("--save run --save-hf 2 2>/dev/null & "),
      "run=$!; until compgen -G 'run/hf/*.log' >/dev/null || ! kill -0 $run 2>/dev/null; do sleep 0.005; done\n"
      "sleep $(awk \"BEGIN { print 0.05 * $round }\"); kill -9 $run $(pgrep -P $run) 2>/dev/null || true\n"
      "wait $run 2>/dev/null && echo ended || echo killed; check; done; ",
      train("--save run --load run --save-hf 2 2>/dev/null; "), "check"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors;
  EXPECT_EQ(outcome.output.find("iff"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("killed"), std::string::npos) << outcome.output;
  EXPECT_TRUE(outcome.output.ends_with("whole\nwhole\nwhole\nwhole\n")) << outcome.output;
}

TEST_F(SaveHfCommand, AFolderThatCannotBeMadeIsSaidAndTrainingGoesOn) {
  const Outcome outcome =
      bash(concat("export OMP_WAIT_POLICY=passive; mkdir run; touch run/hf; ", train("--save run --save-hf 4; "),
                  "echo $?; ls run | grep step; grep -c 'hf folder failed' run/events.jsonl"));
  EXPECT_EQ(outcome.output, "0\nstep_00000002\nstep_00000004\nstep_00000006\nstep_00000007\n2\n") << outcome.errors;
  EXPECT_NE(outcome.errors.find("the Hugging Face folder of step 7 was not made: "), std::string::npos)
      << outcome.errors;
}

TEST_F(SaveHfCommand, WhatCannotBeIsRefusedBeforeTheRun) {
  const Outcome outcome =
      bash(concat(train("--save-hf 4; "), "echo $?; ", train("--save run --save-hf 3; "), "echo $?; ",
                  train("--save run --save-hf 4 --window-size 8 --position-embedding-type alibi; "), "echo $?; ls"));
  EXPECT_EQ(outcome.output, "2\n2\n2\n") << outcome.errors;
  for (const char* problem :
       {"--save-hf 4 (command line) is made from checkpoints: give --save and --save-interval",
        "--save-hf 3 (command line) is not a multiple of --save-interval 2, and only checkpoints become",
        "--save-hf: no family of transformers that this program writes can hold this model. Nearest:"})
    EXPECT_NE(outcome.errors.find(problem), std::string::npos) << problem << "\n" << outcome.errors;
}

}  // namespace save_hf_command_test
}  // namespace espalier
