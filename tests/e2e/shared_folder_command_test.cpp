// Run folders that several people of a group work on: what is written has the permissions that the umask leaves.
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace espalier {
namespace shared_folder_command_test {

class SharedFolderCommand : public Command {
 protected:
  std::string train(const std::string& more) const {
    return concat(
        "espalier train gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 "
        "--max-position-embeddings 16 --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --lr-decay-style constant "
        "--split 90,10,0 --eval-iters 1 --eval-interval 2 --num-threads 1 --save-interval 2 --save-hf 2 "
        "--tensorboard-dir runs/board --data-cache-path cache ",
        tiny_gpt_data(), more, "; ");
  }
};

TEST_F(SharedFolderCommand, TheUmaskDecides) {
  const Outcome outcome =
      bash(concat("set -e; export OMP_WAIT_POLICY=passive; mkdir -m 2775 runs; umask 002; ",
                  train("--save runs/ours --train-iters 4"), train("--save runs/ours --load runs/ours --train-iters 6"),
                  "espalier preprocess --input ", root(),
                  "/tests/data/owt-20.jsonl --output-prefix data/text --tokenizer-type "
                  "GPT2BPETokenizer --vocab-file ",
                  root(), "/tests/data/gpt2-tiny/vocab.json --merge-file ", root(),
                  "/tests/data/gpt2-tiny/merges.txt --append-eod >/dev/null; ",
                  "find runs cache data ! -type l ! -perm -g+w; find runs -type d ! -perm -g+s; "
                  "umask 077; ",
                  train("--save mine/run --train-iters 2"), "find mine -perm /g+rwx,o+rwx; ",
                  "find runs mine -name model* -o -name metrics.jsonl | wc -l"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  // No file is named, and at least the metrics of both runs were there to be looked at.
  EXPECT_EQ(outcome.output.find_first_not_of("0123456789\n"), std::string::npos) << outcome.output;
  EXPECT_GE(std::stoi(outcome.output), 2) << outcome.output;
}

}  // namespace shared_folder_command_test
}  // namespace espalier
