// --ema as a user meets it: exported, generated with, scored and evaluated, and what cannot be is reported.
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace espalier {
namespace ema_command_test {

class EmaCommand : public Command {
 protected:
  std::string train(const std::string& more) const {
    return concat(
        "espalier train gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 32 "
        "--max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --lr-decay-style constant "
        "--split 80,20,0 --eval-iters 2 --num-threads 1 --save-interval 20 --train-iters 20 --log-level error ",
        tiny_gpt_data(), more);
  }
};

// A model imported from the export computes what the checkpoint computes with its average.
TEST_F(EmaCommand, ExportsAndReadersTakeTheSameAverage) {
  const Outcome outcome = bash(
      concat("set -e; ", train("--ema 0.9 --bf16 --save run; "),
             "espalier checkpoint export-hf --load run --ema --output hf; "
             "espalier checkpoint import-hf --input hf --save back; "
             "echo '{\"context\": \"the\", \"continuation\": \" house of the people\"}' >requests; "
             "generate() { espalier generate --greedy --tokens-to-generate 16 --json --prompt 'in the' --load $@; }; "
             "score() { espalier eval --requests requests --load $@; }; "
             "generate run --ema >a; generate back >b; generate run >c; cmp a b; ! cmp -s a c; "
             "score run --ema >a; score back >b; score run >c; cmp a b; ! cmp -s a c; "
             "espalier checkpoint export-hf --load run --output own; ! cmp -s own/model.safetensors "
             "hf/model.safetensors; espalier checkpoint export-hf --load run --ema --dtype fp32 --output fp32 --json"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("\"ema\":true"), std::string::npos) << outcome.output;
}

TEST_F(EmaCommand, TheLogSaysWhatWasEvaluated) {
  const Outcome outcome = bash(train("--ema 0.9 --eval-ema --eval-interval 10 --log-level info"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.errors.find("loss at iteration 10, moving average of the weights"), std::string::npos)
      << outcome.errors;
}

TEST_F(EmaCommand, WhatCannotBeIsSaid) {
  const Outcome refused = bash(concat(train("--eval-ema; "), "echo $?; ", train("--ema 1; "), "echo $?; ",
                                      train("--ema 0.9 --optimizer adamwschedulefree; "), "echo $?; ls"));
  EXPECT_EQ(refused.output, "2\n2\n2\n") << refused.errors;
  for (const char* problem :
       {"--eval-ema (command line) needs a moving average of the weights; give --ema DECAY, such as 0.999",
        "--ema 1.0 (command line) never forgets; use a number below 1",
        "--ema 0.9 (command line): the weights of --optimizer adamwschedulefree (command line) are a mean already"})
    EXPECT_NE(refused.errors.find(problem), std::string::npos) << problem << "\n" << refused.errors;
  const Outcome lacking = bash(concat(train("--save run; "),
                                      "espalier checkpoint export-hf --load run --ema --output hf; echo $?; "
                                      "espalier generate --load run --ema --prompt a; echo $?; "
                                      "espalier eval --requests /dev/null --load run --ema; echo $?; ls"));
  EXPECT_EQ(lacking.output, "2\n2\n2\nrun\n") << lacking.errors;
  EXPECT_NE(lacking.errors.find("--ema: the checkpoint of step 20 holds no moving average of '"), std::string::npos)
      << lacking.errors;
}

}  // namespace ema_command_test
}  // namespace espalier
