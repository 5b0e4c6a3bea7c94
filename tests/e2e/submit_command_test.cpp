// espalier submit: what it refuses before a scheduler sees it.
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace espalier {
namespace {

class SubmitCommand : public Command {
 protected:
  Outcome submit(const std::string& options) const {
    return bash("espalier submit --dry-run " + options +
                " train gpt --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 32"
                " --max-position-embeddings 32 --micro-batch-size 1 --global-batch-size 32 --lr 1e-3 --train-iters 4"
                " --split 1,0,0 --eval-iters 0 --save r --load r --save-interval 2 --tokenizer-type GPT2BPETokenizer"
                " --vocab-file " +
                root() + "/tests/data/gpt2-tiny/vocab.json --merge-file " + root() +
                "/tests/data/gpt2-tiny/merges.txt --data-path " + root() + "/tests/data/owt-20_text_document");
  }
  void expect_refused(const std::string& options, const std::string& message) const {
    const Outcome outcome = submit(options);
    EXPECT_EQ(outcome.exit_code, 2) << options;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << outcome.errors;
    EXPECT_EQ(outcome.output, "");
  }
};

TEST_F(SubmitCommand, ARunOfSeveralMachinesIsCheckedAndWritten) {
  for (const char* scheduler : {"slurm", "pbs"}) {
    const Outcome outcome = submit(concat("--nodes 2 --nproc-per-node 8 --time 1:00:00 --scheduler ", scheduler));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    EXPECT_NE(outcome.output.find("train gpt"), std::string::npos) << outcome.output;
  }
}

TEST_F(SubmitCommand, ATimeThatTheSchedulerWouldRefuseIsRefusedHere) {
  for (const char* time : {"90", "90:00", "20:00:00", "2-0", "2-12:30", "2-12:30:00"})
    EXPECT_EQ(submit(concat("--time ", time)).exit_code, 0) << time;
  for (const char* time : {"20h", "1:2:3:4", "2-", ":30", "12,5", "0", "-5"})
    expect_refused(concat("--time=", time), concat("--time ", time, " is not a job length"));
  expect_refused("--scheduler pbs --time 90:00x", "write HOURS:MINUTES:SECONDS, such as 20:00:00");
}

TEST_F(SubmitCommand, AChainGoesOnInTheFolderOfSaveWhereverItBegan) {
  const std::string chain = "espalier submit --dry-run --no-check --array 3 train gpt ";
  for (const char* folders : {"--save r --load r", "--save r --load archive", "--save r --load archive --finetune",
                              "--save r --load archive --ckpt-step 4 --no-load-optim"}) {
    const Outcome outcome = bash(chain + folders);
    EXPECT_EQ(outcome.exit_code, 0) << folders << outcome.errors;
    EXPECT_NE(outcome.output.find("#SBATCH --array=1-3%1"), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find(concat("train gpt ", folders)), std::string::npos) << outcome.output;
  }
  for (const char* folders : {"--save r", "--load r", ""}) {
    const Outcome outcome = bash(chain + folders);
    EXPECT_EQ(outcome.exit_code, 2) << folders;
    EXPECT_NE(outcome.errors.find("--array: each job would start from scratch; give --save FOLDER, and --load with the "
                                  "same folder or the one that the first job begins from"),
              std::string::npos)
        << outcome.errors;
  }
}

TEST_F(SubmitCommand, AChainHasALength) { expect_refused("--array 99999999999", "--array 99999999999"); }

}  // namespace
}  // namespace espalier
