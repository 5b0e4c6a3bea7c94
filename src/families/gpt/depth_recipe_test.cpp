#include "families/gpt/depth_recipe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "plan/run_plan.h"
#include "tests/support/gpt_options.h"

namespace espalier::families {
namespace depth_recipe_test {

using Values = std::map<std::string, std::string>;

Values values_of(const DepthRecipe& recipe) {
  Values values;
  for (const DepthSetting& setting : recipe.settings) {
    EXPECT_TRUE(values.emplace(setting.key, setting.value).second) << setting.key << " twice";
  }
  return values;
}

// What `train` makes of the recipe, before it looks for files.
config::RunConfig run_of(const DepthRequest& request, const DepthRecipe& recipe) {
  Problems problems;
  config::RunOptions options(gpt_family());
  options.config.num_ranks = 1;
  EXPECT_TRUE(options.table.parse_toml(to_toml(recipe, request), "recipe.toml", problems));
  config::resolve(options.config, options.table, problems);
  EXPECT_EQ(problems.messages(), std::vector<std::string>{}) << to_toml(recipe, request);
  config::set_vocabulary(options.config, request.vocabulary);
  return options.config;
}

TEST(DepthRecipe, IsOneThatRunsWithThePlansOwnNumberOfParameters) {
  for (const int64_t depth : {1, 2, 3, 4, 7, 12, 24, 33, 64})
    for (const int64_t vocabulary : {1, 257, 8192, 50257}) {
      const DepthRequest request{.depth = depth, .vocabulary = vocabulary, .corpora = {{"owt", int64_t{1} << 50}}};
      const DepthRecipe recipe = make_depth_recipe(request);
      const config::RunConfig config = run_of(request, recipe);
      const plan::RunShape shape = config::run_shape(config);
      EXPECT_EQ(plan::plan_run(shape).num_parameters, recipe.parameters) << depth << " " << vocabulary;
      EXPECT_EQ(config.training.num_steps, recipe.steps);
    }
}

// By the formulas as the papers print them, of a depth of 12 with GPT-2's vocabulary.
TEST(DepthRecipe, FollowsThePublishedRules) {
  const DepthRecipe recipe = make_depth_recipe({.depth = 12});
  const double width = 768, layers = 12, length = 1024;
  const double parameters = layers * (12 * width * width + 13 * width) + 4 * width + 50'304 * width;
  EXPECT_EQ(recipe.parameters, static_cast<int64_t>(parameters));
  EXPECT_EQ(recipe.tokens, static_cast<int64_t>(20 * parameters));
  const double compute = (72 * layers * width * width + 12 * layers * width * length) * 20 * parameters;
  EXPECT_NEAR(recipe.flops / compute, 1, 1e-12);
  const Values values = values_of(recipe);
  EXPECT_NEAR(std::stod(values.at("lr")) / (0.3118 * std::pow(compute, -0.125)), 1, 0.05);
  EXPECT_NEAR(std::stod(values.at("min_lr")) / std::stod(values.at("lr")), 0.1, 0.01);
  const double batch = std::stod(values.at("global_batch_size")) * length, by_rule = 0.2920 * std::pow(compute, 0.3271);
  EXPECT_LE(std::abs(std::log2(batch / by_rule)), 0.5);
  EXPECT_NEAR(static_cast<double>(recipe.steps) * batch / (20 * parameters), 1, 0.01);
  EXPECT_EQ(std::stoll(values.at("global_batch_size")) % std::stoll(values.at("micro_batch_size")), 0);
}

// 0.3118 * (1e17)^-0.125 = 0.3118 / 10^2.125.
TEST(DepthRecipe, RatesOfSmallRunsAreThatOfTheSmallestRunThatTheRuleWasFittedTo) {
  for (const int64_t depth : {1, 2, 4}) {
    const DepthRecipe recipe = make_depth_recipe({.depth = depth, .vocabulary = 8192, .tokens = 1'000'000});
    EXPECT_EQ(values_of(recipe).at("lr"), "2.3e-3") << depth;
    EXPECT_EQ(values_of(recipe).at("min_lr"), "2.3e-4") << depth;
  }
}

TEST(DepthRecipe, LittleTextIsReadFourTimesAndGivesTwoHundredSteps) {
  const DepthRecipe recipe =
      make_depth_recipe({.depth = 4, .vocabulary = 8192, .corpora = {{"a", 600'000}, {"b", 200'000}}});
  EXPECT_EQ(recipe.tokens, 3'200'000);
  EXPECT_DOUBLE_EQ(*recipe.epochs, 4);
  EXPECT_GE(recipe.steps, 200);
  EXPECT_EQ(values_of(recipe).at("data_path"), "[0.7500, \"a\", 0.2500, \"b\"]");
  EXPECT_NE(recipe.notes.at(0).find("needs 105 million tokens and gets 3,200,000"), std::string::npos)
      << recipe.notes.at(0);
  const DepthRecipe asked =
      make_depth_recipe({.depth = 4, .vocabulary = 8192, .tokens = 8'000'000, .corpora = {{"a", 800'000}}});
  EXPECT_EQ(asked.tokens, 8'000'000);
  EXPECT_NE(asked.notes.at(0).find("is read 10.0 times"), std::string::npos) << asked.notes.at(0);
}

TEST(DepthRecipe, EverySettingHasItsReason) {
  for (const DepthSetting& setting : make_depth_recipe({.depth = 5, .corpora = {{"x\"y", 5}}}).settings)
    EXPECT_EQ(setting.reason.empty(), setting.key == "log_interval") << setting.key;
  EXPECT_EQ(values_of(make_depth_recipe({.depth = 5, .corpora = {{"x\"y", 5}}})).at("data_path"), "[\"x\\\"y\"]");
}

TEST(DepthRecipe, WhatCannotBeIsRefused) {
  EXPECT_THROW(make_depth_recipe({.depth = 0}), UserError);
  EXPECT_THROW(make_depth_recipe({.depth = 257}), UserError);
  EXPECT_THROW(make_depth_recipe({.depth = 2, .seq_length = 64, .tokens = 63}), UserError);
}

}  // namespace depth_recipe_test
}  // namespace espalier::families
