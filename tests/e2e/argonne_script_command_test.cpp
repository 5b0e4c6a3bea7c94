// The aGPT 7B recipe of Argonne's Megatron-DeepSpeed is planned as it stands, unscaled.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "tests/support/command.h"
#include "tests/support/launch_script.h"

namespace espalier {
namespace argonne_script_command_test {

class ArgonneScriptCommand : public Command {
 protected:
  std::string agpt(const Replacements& replacements) const {
    return replaced(launch_script("agpt-7B.sh", {}, {{"google/gemma-7B", tokenizer()}}), replacements);
  }
  std::string tokenizer() const { return root() + "/tests/data/tokenizers/llama2/tokenizer.json"; }
};

const std::string kLaunch = "mpiexec -n ${WORLD_SIZE} python3 pretrain_gpt_alcf.py";

TEST_F(ArgonneScriptCommand, Agpt7BIsPlannedAsItStands) {
  const Outcome outcome = bash(agpt({{kLaunch, "espalier plan gpt --gpus ${WORLD_SIZE} --json"}}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const auto planned = nlohmann::json::parse(outcome.output);
  // The small tokenizer's ids, rounded up to a multiple of 128.
  const auto vocabulary = nlohmann::json::parse(read_file(tokenizer())).at("model").at("vocab").size();
  const auto rows = static_cast<int64_t>((vocabulary + 127) / 128 * 128);
  const int64_t h = 4096, ffn = 11008, heads = 32, groups = 8;
  const int64_t layer = (heads + 2 * groups) * (h / heads) * h + h * h + 3 * h * ffn + 2 * h;
  EXPECT_EQ(planned.at("parameters").get<int64_t>(), 2 * rows * h + 32 * layer + h);
  EXPECT_EQ(planned.at("micro_batches"), 8);
  EXPECT_EQ(planned.at("zero_stage"), 1);
}

// On Aurora its backend is oneCCL: ranks talk as they do for nccl, and the plan is the same.
TEST_F(ArgonneScriptCommand, TheBackendOfIntelsMachinesIsTaken) {
  const Replacements plan = {{kLaunch, "espalier plan gpt --gpus ${WORLD_SIZE}"}};
  const Outcome nccl = bash(agpt(plan)), ccl = bash(agpt({plan[0], {"BE=nccl", "BE=ccl"}}));
  EXPECT_EQ(ccl.exit_code, 0) << ccl.errors;
  EXPECT_EQ(ccl.output, nccl.output);
}

}  // namespace argonne_script_command_test
}  // namespace espalier
