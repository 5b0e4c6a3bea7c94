// --save-keep-last and --save-keep-every: older checkpoints are removed alongside a run.
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace espalier {
namespace retention_command_test {

class RetentionCommand : public Command {
 protected:
  std::string train(const std::string& more) const {
    return concat(
        "espalier train gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 "
        "--max-position-embeddings 16 --micro-batch-size 2 --global-batch-size 4 --train-iters 13 --lr 1e-2 "
        "--split 90,10,0 --eval-iters 0 --num-threads 1 --save-interval 2 ",
        tiny_gpt_data(), more);
  }
  // A run that keeps all of its checkpoints, in "plain".
  void make_plain_run() const { ASSERT_EQ(made_once(train("--save plain")).exit_code, 0); }
  static constexpr const char* kHead = "set -e; export OMP_WAIT_POLICY=passive; ";
};

TEST_F(RetentionCommand, TheNewestAndEveryNthStay) {
  make_plain_run();
  const Outcome outcome = bash(concat(kHead, train("--save run --save-keep-last 2 --save-keep-every 6; "),
                                      "ls -A run | grep -e step -e remov; espalier checkpoint diff run plain; "
                                      "grep -o '\"event\":\"checkpoints removed\".*' run/events.jsonl | tail -1"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.output.starts_with("step_00000006\nstep_00000012\nstep_00000013\n")) << outcome.output;
  EXPECT_NE(outcome.output.find("bitwise equal"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("\"step\":13"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.errors.find("read and verified the checkpoint at iteration 13; removed that of step"),
            std::string::npos)
      << outcome.errors;
}

// As Megatron-LM's --save-retain-interval alone.
TEST_F(RetentionCommand, EveryNthAndTheNewest) {
  const Outcome outcome = bash(concat(kHead, train("--save run --save-retain-interval 4; "), "ls -A run | grep step"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "step_00000004\nstep_00000008\nstep_00000012\nstep_00000013\n");
}

TEST_F(RetentionCommand, WhatOtherProgramsReadStaysUntilTheyAreDone) {
  const Outcome outcome = bash(concat(kHead, train("--save run --save-hf 2 --save-keep-last 1; "),
                                      "ls run/hf; ls run | grep step; grep -c failed run/events.jsonl || true"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output,
            "step_00000002\nstep_00000004\nstep_00000006\nstep_00000008\nstep_00000010\nstep_00000012\nstep_00000013\n"
            "step_00000013\n0\n")
      << outcome.errors;
}

// A tenth of the documents has 2,329 tokens, so that passes of 145 samples end in steps 4, 8 and 12 of 39 samples; the
// run is stopped between.
TEST_F(RetentionCommand, TheFirstAtOrAfterEachEndOfAPassOverTheData) {
  const std::string words =
      "--save run --load run --save-keep-epochs --save-interval 3 --split 10,90,0 --micro-batch-size 13 "
      "--global-batch-size 39 ";
  const Outcome outcome = bash(
      concat(kHead, train(words + "--exit-interval 7"), "; ", train(words),
             "; ls -A run | grep step; grep '\"event\":\"epoch\"' run/events.jsonl | grep -o '\"step\":[0-9]*'; "
             "espalier checkpoint prune run --keep-epochs --yes | cut -d' ' -f 1 | sort | uniq -c | sed 's/ *//'"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output,
            "step_00000006\nstep_00000009\nstep_00000012\nstep_00000013\n"
            "\"step\":4\n\"step\":8\n\"step\":12\n4 keep\n")
      << outcome.errors;
}

// Of a run that gets the option when it goes on, the passes before count by its records.
TEST_F(RetentionCommand, EndsOfPassesBeforeTheOptionAreFoundInTheRecords) {
  const std::string words =
      "--save run --load run --save-interval 3 --split 10,90,0 --micro-batch-size 13 --global-batch-size 39 ";
  const Outcome outcome =
      bash(concat(kHead, train(words + "--exit-interval 7"), "; cp -r run lost; rm lost/metrics.jsonl; ",
                  train(words + "--save-keep-epochs"),
                  "; ls -A run | grep step; grep '\"event\":\"epoch\"' run/events.jsonl | grep -o '\"step\":[0-9]*'; ",
                  train(words + "--save-keep-epochs --save lost --load lost"), " || echo $?; ls -A lost | grep step"));
  EXPECT_EQ(outcome.output,
            "step_00000006\nstep_00000009\nstep_00000012\nstep_00000013\n"
            "\"step\":4\n\"step\":8\n\"step\":12\n"
            "2\nstep_00000003\nstep_00000006\nstep_00000007\n")
      << outcome.errors;
  EXPECT_NE(outcome.errors.find("nothing in 'lost' tells at which step pass 1 over the data ended"), std::string::npos)
      << outcome.errors;
}

TEST_F(RetentionCommand, EndsOfPassesThatNobodyKnowsAreRefused) {
  make_plain_run();
  const Outcome outcome = bash(concat(train("--save run --save-keep-epochs --packing best-fit; "), "echo $?; ",
                                      "espalier checkpoint prune plain --keep-epochs; echo $?; ",
                                      train("--save-keep-epochs; "), "echo $?"));
  EXPECT_EQ(outcome.output, "2\n1\n2\n") << outcome.errors;
  for (const char* problem :
       {"--save-keep-epochs: how many samples a pass over these data takes depends on their order",
        "it was trained without --save-keep-epochs", "--save-keep-epochs (command line) applies to checkpoints"})
    EXPECT_NE(outcome.errors.find(problem), std::string::npos) << problem << "\n" << outcome.errors;
}

// Removing went wrong: the run continues, an event says so, and nothing was lost.
TEST_F(RetentionCommand, AFailureIsSaidAndTrainingGoesOn) {
  const Outcome outcome =
      bash(concat(kHead, "mkdir -p run/.removing_checkpoints.log; ", train("--save run --save-keep-last 1; "),
                  "ls run | grep -c step; grep -c 'prune failed' run/events.jsonl"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.output.starts_with("7\n")) << outcome.output;
  EXPECT_NE(outcome.errors.find("older checkpoints were not removed: "), std::string::npos) << outcome.errors;
}

// As on a disk that the newest checkpoint has filled: an event that waits for room must not keep the room from being
// made. Here a folder is in the way of the events until only the newest checkpoint is left.
TEST_F(RetentionCommand, AnEventThatWaitsForRoomDoesNotKeepCheckpoints) {
  const std::string words = "--save run --load run --save-interval 2 ";
  const Outcome outcome =
      bash(concat(kHead, train(words + "--exit-interval 6"), "; rm run/events.jsonl; mkdir run/events.jsonl; ",
                  R"(make_room() {
                  for i in $(seq 1000); do
                    [ -e run/step_00000004 ] || break
                    sleep 0.05
                  done
                  rmdir run/events.jsonl
                }
                make_room & )",
                  train(words + "--save-keep-last 1 --train-iters 13"), "; wait; ls run | grep step; ",
                  R"(grep -v '"late":true' run/events.jsonl | grep -c '"event":"start"' || true
                grep '"late":true' run/events.jsonl | grep -o '"event":"start"')"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "step_00000013\n0\n\"event\":\"start\"\n") << outcome.errors;
  EXPECT_NE(outcome.errors.find("this event waits to be recorded: start at step 6"), std::string::npos)
      << outcome.errors;
}

TEST_F(RetentionCommand, WhatCannotBeIsRefusedBeforeTheRun) {
  const Outcome outcome = bash(
      concat(train("--save-keep-last 3; "), "echo $?; ", train("--save run --save-keep-every 3; "), "echo $?; ls"));
  EXPECT_EQ(outcome.output, "2\n2\n") << outcome.errors;
  for (const char* problem :
       {"--save-keep-last 3 (command line) applies to checkpoints: give --save and --save-interval",
        "--save-keep-every 3 (command line) is not a multiple of --save-interval 2, so that some"})
    EXPECT_NE(outcome.errors.find(problem), std::string::npos) << problem << "\n" << outcome.errors;
}

// What is damaged: the newest, or an older one that stays.
TEST_F(RetentionCommand, PruneVerifiesAllThatStaysOrTheNewest) {
  make_plain_run();
  const std::string flip =
      "flip() { printf '\\xff' | dd of=run/$1/weights-final.safetensors bs=1 seek=200 conv=notrunc "
      "status=none; }; ";
  const Outcome outcome = bash(concat(
      "export OMP_WAIT_POLICY=passive; mv plain run; ", flip,
      "flip step_00000012; prune() { espalier checkpoint prune run --yes \"$@\" >/dev/null; echo $?; ls run | grep -c "
      "step; }; prune --keep-last 2; prune --keep-last 2 --keep 4 --verify newest; flip step_00000013; "
      "prune --keep-last 1 --verify newest"));
  EXPECT_EQ(outcome.output, "65\n7\n0\n3\n65\n3\n") << outcome.errors;
  EXPECT_NE(outcome.errors.find("weights-final.safetensors"), std::string::npos) << outcome.errors;
}

}  // namespace retention_command_test
}  // namespace espalier
