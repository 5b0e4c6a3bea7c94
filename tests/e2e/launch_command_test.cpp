// What espalier launch answers without starting ranks, and what it says while it waits for machines.
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace espalier {
namespace {

class LaunchCommand : public Command {
 protected:
  static int64_t count(const std::string& text, const std::string& part) {
    int64_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  }
};

TEST_F(LaunchCommand, AnAnswerInPlaceOfWorkIsGivenOnce) {
  for (const char* command : {"generate --help", "serve -h", "eval --help-all", "train gpt --help", "train --help",
                              "train gpt --help-markdown", "preprocess --help", "replay --help",
                              "checkpoint inspect --help", "help", "version"}) {
    const Outcome alone = bash(concat("espalier ", command)),
                  launched = bash(concat("espalier launch --nproc-per-node 2 ", command));
    EXPECT_EQ(launched.exit_code, 0) << command << launched.errors;
    EXPECT_EQ(launched.output, alone.output) << command;
    EXPECT_EQ(launched.errors.find("starting"), std::string::npos) << command << launched.errors;
  }
}

// Two processes would write the same files.
TEST_F(LaunchCommand, WhatDividesNothingRunsInOneProcess) {
  const std::string words = concat("preprocess --input ", root(),
                                   "/tests/data/owt-20.jsonl --tokenizer-type "
                                   "GPT2BPETokenizer --vocab-file ",
                                   root(),
                                   "/tests/data/gpt2-tiny/vocab.json "
                                   "--merge-file ",
                                   root(), "/tests/data/gpt2-tiny/merges.txt --output-prefix ");
  const Outcome outcome = bash(concat("espalier launch --nproc-per-node 2 ", words, "launched && espalier ", words,
                                      "alone && cmp launched_text_document.bin alone_text_document.bin"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.errors.find("espalier preprocess runs in one process: no ranks are started"), std::string::npos)
      << outcome.errors;
  const Outcome wrong = bash("espalier launch --nproc-per-node 2 train gtp --num-layers 2");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_EQ(count(wrong.errors, "'gtp' is not a model family"), 1) << wrong.errors;
}

// A run that has enough machines waits for others until it starts without them; one that has not, until it gives up.
TEST_F(LaunchCommand, AWaitSaysForHowManyMachinesAndWhatThen) {
  const std::string train =
      "train gpt --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 32 "
      "--max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 2 --lr 1e-3 --split "
      "1,0,0 --eval-iters 0 --train-iters 1 " +
      tiny_gpt_data();
  const Outcome enough = bash(
      "espalier launch --nnodes 1:2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 --rdzv-conf "
      "is_host=true,last_call_timeout=2 --nproc-per-node 1 " +
      train);
  EXPECT_EQ(enough.exit_code, 0) << enough.errors;
  EXPECT_NE(enough.errors.find("waiting for up to 1 more machine (1 of at least 1 and at most 2 here: "),
            std::string::npos)
      << enough.errors;
  EXPECT_NE(enough.errors.find(" so far, the run starts without at "), std::string::npos) << enough.errors;
  const Outcome few = bash(
      "espalier launch --nnodes 2:3 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 --rdzv-conf "
      "is_host=true,join_timeout=2 --nproc-per-node 1 " +
      train + " --global-batch-size 6");
  EXPECT_EQ(few.exit_code, 69) << few.errors;
  EXPECT_NE(few.errors.find("waiting for 1 more machine (1 of at least 2 and at most 3 here: "), std::string::npos)
      << few.errors;
  EXPECT_NE(few.errors.find(" so far, until "), std::string::npos) << few.errors;
}

}  // namespace
}  // namespace espalier
