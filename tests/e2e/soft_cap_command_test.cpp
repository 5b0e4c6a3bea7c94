// --logit-soft-cap and --attn-logit-soft-cap as a user meets them: a run evaluates and generates with them, and formats
// that cannot say them are refused.
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace espalier {
namespace soft_cap_command_test {

class SoftCapCommand : public Command {
 protected:
  std::string train(const std::string& more) const {
    return concat(
        "espalier train gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 32 "
        "--max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --lr-decay-style constant "
        "--split 80,20,0 --eval-iters 2 --num-threads 1 --save-interval 5 --train-iters 5 --log-level error ",
        tiny_gpt_data(), more);
  }
};

TEST_F(SoftCapCommand, FormatsThatCannotSayThemAreRefused) {
  for (const std::string option : {"--logit-soft-cap", "--attn-logit-soft-cap"}) {
    const Outcome outcome =
        bash(concat("rm -rf run; ", train(concat(option, " 5 --save run; ")),
                    "espalier generate --load run --greedy --tokens-to-generate 4 --prompt in >text; "
                    "echo $?; espalier checkpoint export-hf --load run --output hf; echo $?; "
                    "espalier checkpoint export-megatron --load run --output megatron; echo $?; "
                    "ls -d hf megatron"));
    EXPECT_EQ(outcome.output, "0\n2\n2\n") << outcome.errors;
    EXPECT_NE(outcome.errors.find(option), std::string::npos) << outcome.errors;
    EXPECT_NE(outcome.errors.find("not capped (" + option), std::string::npos) << outcome.errors;
    EXPECT_NE(outcome.errors.find("caps its logits or attention scores"), std::string::npos) << outcome.errors;
  }
}

TEST_F(SoftCapCommand, NamesOfOthersLeadToThem) {
  const Outcome outcome = bash(train("--final-logit-softcapping 30; ") + train("--attn-logit-softcapping 50; "));
  EXPECT_NE(outcome.errors.find("--logit-soft-cap"), std::string::npos) << outcome.errors;
  EXPECT_NE(outcome.errors.find("--attn-logit-soft-cap"), std::string::npos) << outcome.errors;
}

}  // namespace soft_cap_command_test
}  // namespace espalier
