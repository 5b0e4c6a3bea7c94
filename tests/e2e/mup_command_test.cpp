// --mup as a user meets it: the base width is a model without it, exports compute the same, and what cannot be is
// reported.
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace espalier {
namespace mup_command_test {

class MupCommand : public Command {
 protected:
  std::string train(const std::string& more) const {
    return concat(
        "espalier train gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 32 "
        "--max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --lr-decay-style constant "
        "--split 100,0,0 --eval-iters 0 --num-threads 1 --save-interval 20 --train-iters 20 --log-level error ",
        tiny_gpt_data(), more);
  }
};

TEST_F(MupCommand, AtTheBaseWidthNothingChangesByABit) {
  const Outcome outcome = bash(concat(
      "set -e; ", train("--save plain; "), train("--mup --mup-base-hidden-size 32 --mup-base-head-dim 8 --save mup; "),
      "for run in plain mup; do grep -o '\"lm_loss\":[0-9.]*' $run/metrics.jsonl >$run.losses; done; "
      "wc -l <plain.losses; cmp plain.losses mup.losses; "
      "espalier checkpoint diff plain/step_00000020 mup/step_00000020"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_TRUE(outcome.output.starts_with("20\n")) << outcome.output;
  EXPECT_NE(outcome.output.find("bitwise equal"), std::string::npos) << outcome.output;
}

// Its multipliers go into the weights of the export, which compares its logits with those of transformers' formulas.
TEST_F(MupCommand, AnExportComputesWhatTheModelComputes) {
  const std::string llama =
      "--position-embedding-type rotary --normalization rmsnorm --swiglu --disable-bias-linear "
      "--untie-embeddings-and-output-weights --num-key-value-heads 2 ";
  const std::string mup = "--mup --mup-base-hidden-size 8 --mup-embedding-mult 3 --mup-base-head-dim 2 ";
  for (const std::string& shape : {std::string(), std::string("--embed-layernorm --position-embedding-type alibi "),
                                   llama, llama + "--qk-layernorm --mup-output-mult 0.5 "}) {
    const Outcome outcome = bash(concat("set -e; rm -rf run hf; ", train(concat(shape, mup, "--save run 2>log; ")),
                                        "espalier checkpoint export-hf --load run --output hf; grep -c mup hf/*.json"));
    EXPECT_NE(outcome.errors.find("the logits are equal: largest difference"), std::string::npos) << outcome.errors;
    EXPECT_NE(outcome.errors.find("what --mup multiplies by is in the weights"), std::string::npos) << outcome.errors;
    EXPECT_EQ(outcome.output.find(":1"), std::string::npos) << outcome.output;
  }
}

TEST_F(MupCommand, WhatCannotBeIsRefusedBeforeTheRun) {
  const Outcome outcome = bash(concat(train("--mup --optimizer lamb; "), "echo $?; ",
                                      train("--mup --mup-base-hidden-size 8 --optimizer muon; "), "echo $?; ",
                                      "espalier train bert --mup; echo $?; ls"));
  EXPECT_EQ(outcome.output, "2\n2\n2\n") << outcome.errors;
  for (const char* problem :
       {"--mup needs --mup-base-hidden-size, the hidden size of the model that was tuned",
        "--optimizer lamb (command line) has no rule for the learning rate of wider models; with --mup use adam",
        "with --mup the updates of muon's matrices need --muon-scale-mode unit_rms_norm",
        "muP is built for GPT, not for a BERT"})
    EXPECT_NE(outcome.errors.find(problem), std::string::npos) << problem << "\n" << outcome.errors;
  const Outcome exported =
      bash(concat(train("--mup --mup-base-hidden-size 8 --save run; "),
                  "espalier checkpoint export-megatron --load run --output megatron; echo $?; ls -d megatron"));
  EXPECT_TRUE(exported.output.ends_with("2\n")) << exported.output << exported.errors;
  EXPECT_NE(exported.errors.find("multiplies logits, embeddings or scores by numbers of --mup"), std::string::npos)
      << exported.errors;
}

}  // namespace mup_command_test
}  // namespace espalier
