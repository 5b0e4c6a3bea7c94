// Against what lm_eval 0.3.0 makes of the same items (tests/data/eval/bloom-tasks.json), closed forms and plain loops.
#include "eval/metric.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "data/python_random.h"
#include "eval/fields.h"

namespace espalier::eval {
namespace metric_test {

Json golden() { return Json::parse(read_file("tests/data/eval/bloom-tasks.json"))["aggregates"]; }

Items plain(const std::vector<double>& values) {
  Items items;
  for (const double value : values) items.push_back({.value = value});
  return items;
}

TEST(Metric, AggregatesAreThoseOfTheHarness) {
  const Json expected = golden();
  const Items flags = plain(expected["mean_stderr_items"].get<std::vector<double>>());
  EXPECT_EQ(mean().value(flags), expected["mean"].get<double>());
  EXPECT_EQ(mean().error(flags, 0), expected["mean_stderr"].get<double>());
  const Items logs = plain(expected["perplexity_items"].get<std::vector<double>>());
  EXPECT_EQ(perplexity().value(logs), expected["perplexity"].get<double>());

  Items taco, multirc;
  for (const Json& item : expected["mc_taco_items_gold_pred_question"])
    taco.push_back({item[1].get<double>(), item[0].get<double>(), item[2].get<std::string>(), ""});
  EXPECT_EQ(question_exact_match().value(taco), expected["em"].get<double>());
  EXPECT_EQ(question_f1().value(taco), expected["f1"].get<double>());
  EXPECT_FALSE(question_f1().error);
  for (const Json& item : expected["multirc_items"])
    multirc.push_back({item[0].get<bool>() ? 1.0 : 0.0, item[1]["label"].get<double>(),
                       item[1]["idx"]["paragraph"].dump(), item[1]["idx"]["question"].dump()});
  EXPECT_EQ(all_answers().value(multirc), expected["multirc_acc"].get<double>());
  EXPECT_EQ(all_answers().error(multirc, 0), expected["multirc_stderr"].get<double>());
}

TEST(Metric, AConfusionGivesF1AndTheCorrelation) {
  Items items;  // 3 hits, 2 false alarms, 1 miss, 4 others
  for (const auto& [said, right, count] : {std::tuple{1, 1, 3}, {1, 0, 2}, {0, 1, 1}, {0, 0, 4}})
    items.insert(items.end(), static_cast<size_t>(count),
                 Item{static_cast<double>(said), static_cast<double>(right), "", ""});
  EXPECT_DOUBLE_EQ(f1().value(items), 6.0 / 9);
  EXPECT_DOUBLE_EQ(matthews_correlation().value(items), (3.0 * 4 - 2 * 1) / std::sqrt(5.0 * 4 * 6 * 5));
  EXPECT_EQ(f1().value(Items(3)), 0);  // nothing said, nothing right
  EXPECT_EQ(matthews_correlation().value(Items(3)), 0);
}

TEST(Metric, WeightedMeansAreOverTheSums) {
  const Items items = {{-3.0, 4, "", ""}, {-5.0, 1, "", ""}};
  EXPECT_DOUBLE_EQ(weighted_perplexity().value(items), std::exp(8.0 / 5));
  EXPECT_DOUBLE_EQ(bits_per_byte().value(items), 8.0 / 5 / std::log(2.0));
}

// The figures are CPython's: sample deviation of exp(-mean(rnd.choices(xs, k=len(xs)))), rnd seeded 0, 1, ... for each
// chunk of 1,000; xs = [-0.5, -2.25, -1.0], and for f1 the items above.
TEST(Metric, BootstrapDrawsAsPythonDoes) {
  const Items logs = plain({-0.5, -2.25, -1.0});
  EXPECT_NEAR(*perplexity().error(logs, 2), 0.8281189520166979, 1e-14);
  EXPECT_NEAR(*perplexity().error(logs, 7), 1.4712926668397903, 1e-14);
  EXPECT_NEAR(*perplexity().error(logs, 2500), 1.8287396107958835, 1e-14);
  EXPECT_NEAR(*f1().error({{1, 1, "", ""}, {1, 0, "", ""}, {0, 1, "", ""}, {1, 1, "", ""}, {0, 0, "", ""}}, 33),
              0.3130336057475937, 1e-14);
  EXPECT_FALSE(perplexity().error(logs, 0));
  EXPECT_FALSE(perplexity().error(plain({-1.0}), 100));
  EXPECT_FALSE(mean().error(plain({-1.0}), 100));
}

TEST(Metric, ArgMaxTakesTheFirstOfTheLargest) {
  EXPECT_EQ(arg_max({-1, -1}), 0u);
  EXPECT_EQ(arg_max({-2, -1, -1}), 1u);
  EXPECT_EQ(arg_max({-INFINITY, -INFINITY, -3}), 2u);
  EXPECT_EQ(arg_max({1, NAN, 2, NAN}), 1u);
}

}  // namespace metric_test
}  // namespace espalier::eval
