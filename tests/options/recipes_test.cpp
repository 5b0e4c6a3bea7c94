// Every recipe in recipes/ is a legal run; the ones named for a published model have its numbers.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "config/run_config.h"
#include "plan/flops.h"

namespace espalier::config {
namespace {

using namespace test;

struct Published {
  int64_t num_parameters;  // as counted by the model's repository; its padded vocabulary where that is larger
  int64_t num_ranks, data_parallel, num_steps;
};

RunConfig read_recipe(const std::string& path, std::optional<int64_t> num_ranks, Problems& problems) {
  RunConfig config;
  OptionTable table("espalier train gpt", "");
  EXPECT_TRUE(read_run(families::gpt_family(), {"--recipe", path, "--validate-only"}, config, table, problems));
  config.num_ranks = num_ranks;
  resolve(config, table, problems);
  return config;
}

TEST(Recipes, EveryOneValidates) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("recipes")) {
    if (entry.is_directory()) continue;  // machines
    Problems problems;
    const RunConfig config = read_recipe(entry.path(), std::nullopt, problems);
    EXPECT_EQ(problems.messages(), std::vector<std::string>{}) << entry.path();
    EXPECT_GT(config.training.num_steps, 0) << entry.path();
    names.insert(entry.path().stem());
  }
  for (const char* name : {"tiny", "gpt2-124m", "bloom-560m", "bloom-176b", "gpt3-175b", "llama-tiny", "llama-3.1-8b"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Recipes, NumbersAreThoseOfThePublishedModels) {
  const std::vector<std::pair<std::string, Published>> models = {
      {"bloom-176b", {176247271424, 384, 8, 115311}},  // steps: Megatron-DeepSpeed's own count of the tr11 flags
      {"bloom-560m", {559214592, 1, 1, 866753}},
      {"llama-3.1-8b", {8030261248, 64, 16, 234375}},  // meta-llama/Llama-3.1-8B; 120,000,000 / 512 steps
      {"gpt2-124m", {124439808 + 47 * 768, 1, 1, 18865}},
      // 96 layers of 12 h^2 + 13 h, two vectors of the last norm, 51,200 words and 2,048 positions.
      {"gpt3-175b",
       {96LL * (12LL * 12288 * 12288 + 13 * 12288) + 2 * 12288 + (51200LL + 2048) * 12288, 1024, 8, 111354}},
  };
  for (const auto& [name, published] : models) {
    Problems problems;
    RunConfig config = read_recipe("recipes/" + name + ".toml", published.num_ranks, problems);
    EXPECT_EQ(problems.messages(), std::vector<std::string>{}) << name;
    set_vocabulary(config, 1);
    EXPECT_EQ(model_spec(config).num_parameters(), published.num_parameters) << name;
    EXPECT_EQ(config.grid.data, published.data_parallel) << name;
    EXPECT_EQ(config.training.num_steps, published.num_steps) << name;
    if (name == "bloom-176b") {
      EXPECT_EQ(config.parallel.zero_stage, 1);  // what --zero-stage 0 with --bf16 meant under DeepSpeed
    }
  }
}

}  // namespace
}  // namespace espalier::config
