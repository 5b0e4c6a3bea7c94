// Runs that this machine cannot hold, and checks that only check.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/command.h"

namespace espalier {
namespace {

class TrainMemoryCommand : public Command {
 protected:
  std::string run(const std::string& size) const {
    return "train gpt --seq-length 64 --max-position-embeddings 64 --lr 1e-3 --train-iters 4 --eval-iters 0 " + size +
           " --global-batch-size 64 --tokenizer-type GPT2BPETokenizer --vocab-file " + root() +
           "/tests/data/gpt2-tiny/vocab.json --merge-file " + root() + "/tests/data/gpt2-tiny/merges.txt --data-path " +
           root() + "/tests/data/owt-20_text_document --split 1,0,0 --save runs/large --save-interval 100 ";
  }
  // 10^13 parameters: no machine has 140 TB.
  const std::string huge_ = "--num-layers 800 --hidden-size 32768 --num-attention-heads 64 --micro-batch-size 8";
  const std::string tiny_ = "--num-layers 2 --hidden-size 16 --num-attention-heads 2 --micro-batch-size 8";
  bool nothing_is_written() const { return fs::is_empty(folder_ / "work"); }
};

TEST_F(TrainMemoryCommand, WhatDoesNotFitIsRefusedWithItsPartsBeforeAnythingIsWritten) {
  const Outcome outcome = bash("espalier " + run(huge_));
  EXPECT_EQ(outcome.exit_code, 2);
  for (const char* said : {"this run needs", "TiB of memory on one machine (one process)", "to give (", "optimizer",
                           "gradients", "weights", "--allow-memory-overcommit"})
    EXPECT_NE(outcome.errors.find(said), std::string::npos) << said << "\n" << outcome.errors;
  EXPECT_TRUE(nothing_is_written());
}

TEST_F(TrainMemoryCommand, AllProcessesOfTheMachineCount) {
  const Outcome outcome = bash("espalier launch --nproc-per-node 4 " + run(huge_) + "--tensor-model-parallel-size 4");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("(4 processes, "), std::string::npos) << outcome.errors;
  EXPECT_TRUE(nothing_is_written());
}

TEST_F(TrainMemoryCommand, ACheckForAnotherMachineSaysItAndSucceeds) {
  const Outcome outcome = bash("espalier " + run(huge_) + "--validate-only");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.errors.find("warning: this run needs"), std::string::npos) << outcome.errors;
  const Outcome quiet = bash("espalier " + run(huge_) + "--validate-only --allow-memory-overcommit");
  EXPECT_EQ(quiet.exit_code, 0);
  EXPECT_EQ(quiet.errors.find("this run needs"), std::string::npos) << quiet.errors;
}

// A model of which 8 samples at once take about twice what this machine has, and one sample about half: a layer has
// 12 h^2 parameters of 32 bytes (weights, gradients, optimizer, the copy to be saved), and keeps about 34 h bytes a
// token.
TEST_F(TrainMemoryCommand, NamesFlagsWithWhichItFits) {
  const std::string meminfo = read_file("/proc/meminfo");
  const double available = 1024 * std::stod(meminfo.substr(meminfo.find("MemAvailable:") + 13));
  const int64_t layers = std::llround(2 * available / (12 * 256 * 256 * 32 + 34.0 * 256 * 8 * 2048));
  const Outcome outcome =
      bash("espalier " + run(concat("--num-layers ", layers,
                                    " --hidden-size 256 --num-attention-heads 4 --seq-length 2048"
                                    " --max-position-embeddings 2048 --micro-batch-size 8 --bf16")));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.errors;
  EXPECT_NE(outcome.errors.find("What fits, after the same flags:"), std::string::npos) << outcome.errors;
  EXPECT_NE(outcome.errors.find("\n    --micro-batch-size 1   ("), std::string::npos) << outcome.errors;
  EXPECT_NE(outcome.errors.find("--recompute-granularity full"), std::string::npos) << outcome.errors;
}

TEST_F(TrainMemoryCommand, LaunchWithValidateOnlyOnlyChecks) {
  const Outcome outcome = bash("espalier launch --nproc-per-node 2 " + run(tiny_) + "--validate-only");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("num_layers = 2"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.errors.find("valid: "), std::string::npos) << outcome.errors;
  EXPECT_TRUE(nothing_is_written());
  const Outcome wrong = bash("espalier launch --nproc-per-node 3 " + run(tiny_) + "--validate-only");
  EXPECT_EQ(wrong.exit_code, 2) << wrong.errors;
}

// Threads that wait look for work first in a job that has its cores for itself, and sleep at once where there are more
// of them than cores, unless the user has said how they are to wait. What happens elsewhere depends on what else runs.
TEST_F(TrainMemoryCommand, ThreadsWaitAsTheCoresAllow) {
  const std::string show =
      "unset OMP_WAIT_POLICY GOMP_SPINCOUNT; mkdir bin; cp $(command -v espalier) bin/; printf '#!/bin/bash\\necho "
      "policy=$OMP_WAIT_POLICY "
      "spin=$GOMP_SPINCOUNT\\n'"
      " >bin/espalier-engine; chmod +x bin/espalier-engine; ";
  EXPECT_EQ(bash(show + "PBS_JOBID=1 bin/espalier " + run(tiny_)).output, "policy= spin=10000\n");
  const std::string as_was = "unset OMP_WAIT_POLICY GOMP_SPINCOUNT; ";
  EXPECT_EQ(bash(as_was + "PBS_JOBID=1 OMP_NUM_THREADS=$(($(nproc) + 1)) bin/espalier " + run(tiny_)).output,
            "policy=passive spin=\n");
  EXPECT_EQ(bash("OMP_WAIT_POLICY=active bin/espalier " + run(tiny_)).output, "policy=active spin=\n");
  EXPECT_EQ(bash("unset OMP_WAIT_POLICY; GOMP_SPINCOUNT=1000 bin/espalier " + run(tiny_)).output,
            "policy= spin=1000\n");
  const Outcome launched =
      bash(as_was + "OMP_NUM_THREADS=$(nproc) bin/espalier launch --nproc-per-node 2 " + run(tiny_));
  EXPECT_EQ(launched.output, "policy=passive spin=\npolicy=passive spin=\n");
}

}  // namespace
}  // namespace espalier
