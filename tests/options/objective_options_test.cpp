// --objective and what goes with it: what is refused, what is reported as without effect, and what a plan counts.
#include <gtest/gtest.h>

#include "config/unused_options.h"
#include "plan/flops.h"
#include "tests/support/gpt_options.h"

namespace espalier::config {
namespace objective_options_test {

using namespace test;
using data::Objective;
using Words = std::vector<std::string>;

Words problems_of(const std::string& flags) { return Parsed(kGood + flags).messages(); }

TEST(ObjectiveOptions, FillTheRulesOfRows) {
  const RunConfig prefix = resolved_run(kGood +
                                            "--objective prefix --loss-on-targets-only "
                                            "--reweight-loss-based-on-position-frequency --reset-attention-mask "
                                            "--seed 77",
                                        0);
  data::RowRules rules = families::row_rules(prefix);
  EXPECT_EQ(rules.objective,
            (Objective{.kind = Objective::Kind::kPrefix, .loss_on_targets_only = true, .reweight_positions = true}));
  EXPECT_TRUE(rules.text.reset_attention_mask);
  EXPECT_EQ(rules.seed, 77);
  EXPECT_TRUE(families::gpt_config(prefix).whole_prompt);
  EXPECT_EQ(data_sets(prefix).endings, Words{""});

  const RunConfig pairs = resolved_run(kGood + "--objective multitask --norm-target-loss", 0);
  EXPECT_EQ(families::row_rules(pairs).objective,
            (Objective{.kind = Objective::Kind::kMultitask, .norm_target_loss = true}));
  EXPECT_FALSE(families::gpt_config(pairs).whole_prompt);
  EXPECT_EQ(data_sets(pairs).endings, (Words{"_inputs_document", "_targets_document"}));
  EXPECT_TRUE(families::gpt_config(resolved_run(kGood + "--objective multitask --prefixlm", 0)).whole_prompt);
}

TEST(ObjectiveOptions, ThatDoNotGoTogetherAreRefusedAllAtOnce) {
  EXPECT_EQ(
      problems_of("--loss-on-targets-only --reweight-loss-based-on-position-frequency --prefixlm --norm-target-loss"),
      (Words{
          "--loss-on-targets-only (command line) needs --objective prefix: without a prefix every token is a target. "
          "Leave it out",
          "--reweight-loss-based-on-position-frequency (command line) needs --objective prefix, where later places "
          "are targets more often than earlier ones. Leave it out",
          "--prefixlm (command line) needs --objective multitask, whose inputs then see all of themselves. Leave it "
          "out",
          "--norm-target-loss (command line) needs --objective multitask, whose targets then weigh the same. Leave "
          "it out"}));
  EXPECT_EQ(
      problems_of("--objective prefix --prefixlm --norm-target-loss --window-size 9"),
      (Words{"--prefixlm (command line) is for the inputs of packed pairs (--objective multitask); the tokens of "
             "a prefix see each other anyway. Leave it out",
             "--norm-target-loss (command line) needs --objective multitask, whose targets then weigh the same. "
             "Leave it out",
             "--window-size 9 (command line) and --objective prefix (command line) are mutually exclusive: what is "
             "given is seen as a whole, and a window shows at most the last 9 tokens. Leave --window-size out"}));
  EXPECT_EQ(
      problems_of("--objective multitask --prefixlm --window-size 9 --reset-attention-mask "
                  "--reweight-loss-based-on-position-frequency"),
      (Words{"--reweight-loss-based-on-position-frequency (command line) needs --objective prefix, where later "
             "places are targets more often than earlier ones. Leave it out",
             "--reset-attention-mask (command line) is for samples that run over the ends of documents; attention "
             "stays inside each packed pair anyway. Leave it out",
             "--window-size 9 (command line) and --objective multitask (command line) are mutually exclusive: what "
             "is given is seen as a whole, and a window shows at most the last 9 tokens. Leave --window-size "
             "out"}));
  EXPECT_EQ(problems_of("--objective multitask --window-size 9"), Words{}) << "causal";
  EXPECT_EQ(problems_of("--objective prefix --reset-attention-mask --reset-position-ids --eod-mask-loss"), Words{});
}

TEST(ObjectiveOptions, WithoutEffectAreNamed) {
  const Parsed run(kGood + "--objective multitask --loss-on-targets-only --reset-position-ids");
  EXPECT_EQ(run.messages(), Words{});
  EXPECT_EQ(unused_options(run.config, run.table),
            (Words{"--loss-on-targets-only (command line) has no effect: --objective multitask has no other loss",
                   "--reset-position-ids (command line) has no effect: positions restart at each packed pair"}));
}

TEST(ObjectiveOptions, ResetProgressIsFinetuneWhereMomentsAreLeftBehind) {
  const Parsed good(kGood + "--reset-progress --no-load-optim --load run");
  EXPECT_EQ(good.messages(), Words{});
  EXPECT_TRUE(good.config.checkpoint.finetune);
  EXPECT_EQ(problems_of("--reset-progress --load run"),
            Words{"--reset-progress (command line) begins at iteration 0 with the checkpoint's moments; here a new run "
                  "has fresh ones. Give --no-load-optim as well, or only --finetune"});
  EXPECT_EQ(problems_of("--reset-progress --no-load-optim"),
            (Words{"--reset-progress (command line) needs --load: the folder to load from",
                   "--no-load-optim (command line) needs --load: the folder to load from"}));
}

// Each prefix of p tokens shows p (p - 1) / 2 pairs more than causality; the mean over all lengths, by counting.
TEST(ObjectiveOptions, APlanCountsWhatPrefixesSee) {
  const std::string flags = kGood + "--pad-vocab-size-to 128 ";
  const auto flops = [&](const std::string& more) {
    return plan::model_flops(model_spec(resolved_run(flags + more, 0)));
  };
  constexpr int64_t kLength = 33, kLayers = 2, kHidden = 48;
  double pairs = 0;
  for (int64_t prefix = 1; prefix <= kLength; ++prefix)
    for (int64_t query = 0; query < prefix; ++query) pairs += static_cast<double>(prefix - 1 - query) / kLength;
  // Forward and twice as much backward; a product with the key and one with the value, two operations each.
  EXPECT_NEAR(flops("--objective prefix") - flops(""), 3 * kLayers * pairs * 2 * 2 * kHidden, 1e-3);
  EXPECT_EQ(flops("--objective prefix --reset-attention-mask"), flops(""));
  const double plain = model_spec(resolved_run(flags, 0)).batch_bytes;
  EXPECT_EQ(model_spec(resolved_run(flags + "--objective prefix", 0)).batch_bytes - plain, 33 * 4 + 4);
  EXPECT_EQ(model_spec(resolved_run(flags + "--objective multitask", 0)).batch_bytes - plain, 33 * 8 + 4);
}

}  // namespace objective_options_test
}  // namespace espalier::config
