#include "report/metrics_index.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

namespace espalier::report {
namespace {

class MetricsIndexTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(file_); }
  void append(const std::string& text) { std::ofstream(file_, std::ios::app) << text; }
  std::vector<float> values(const std::string& name) {
    const MetricsIndex::Column* column = index_.find(name);
    return column == nullptr ? std::vector<float>() : column->values;
  }
  std::filesystem::path file_ = testing::TempDir() + "metrics_index_test.jsonl";
  MetricsIndex index_{file_};
};

TEST_F(MetricsIndexTest, FollowsAFileThatGrowsInTheMiddleOfALine) {
  index_.update();
  EXPECT_TRUE(index_.steps().empty());
  append(R"({"step":1,"lm_loss":3.5,"skipped":false,"sample_hash":"12"})"
         "\n"
         R"({"step":2,"lm_l)");
  index_.update();
  EXPECT_EQ(index_.steps(), std::vector<int64_t>{1});
  append(R"(oss":2.5,"grad_norm":null,"by":{"a":7},"skipped":true})"
         "\n");
  index_.update();
  EXPECT_EQ(index_.steps(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(values("lm_loss"), (std::vector<float>{3.5F, 2.5F}));
  EXPECT_EQ(values("skipped"), (std::vector<float>{0, 1}));
  EXPECT_TRUE(std::isnan(values("by/a")[0]));
  EXPECT_EQ(values("by/a")[1], 7);
  EXPECT_TRUE(std::isnan(values("grad_norm")[1]));
  EXPECT_TRUE(values("sample_hash").empty());
}

TEST_F(MetricsIndexTest, ARunThatWentBackCountsFromThere) {
  append(
      "{\"step\":1,\"a\":1}\n{\"step\":2,\"a\":2}\n{\"step\":2,\"valid\":{\"wiki\":{\"loss\":5}}}\n{\"step\":3,\"a\":3}"
      "\n");
  index_.update();
  const int64_t before = index_.generation();
  ASSERT_EQ(index_.evaluations().size(), 1U);
  EXPECT_EQ(index_.evaluations()[0].set, "wiki");
  append("no line\n{\"step\":2,\"a\":9}\n");
  index_.update();
  EXPECT_EQ(index_.steps(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(values("a"), (std::vector<float>{1, 9}));
  EXPECT_TRUE(index_.evaluations().empty());
  EXPECT_NE(index_.generation(), before);
}

TEST_F(MetricsIndexTest, AFileThatWasCutOffIsReadAnew) {
  append("{\"step\":1,\"a\":1}\n{\"step\":2,\"a\":2}\n");
  index_.update();
  const int64_t before = index_.generation();
  std::ofstream(file_) << "{\"step\":5,\"a\":4}\n";
  index_.update();
  EXPECT_EQ(index_.steps(), std::vector<int64_t>{5});
  EXPECT_NE(index_.generation(), before);
}

TEST_F(MetricsIndexTest, EverySpikeIsTheExtremeOfItsBin) {
  constexpr int kSteps = 100'003, kEvery = 97;
  std::string text;
  for (int step = 1; step <= kSteps; ++step)
    text += "{\"step\":" + std::to_string(step) + ",\"a\":" + (step % kEvery == 0 ? std::to_string(1000 + step) : "1") +
            "}\n";
  append(text);
  index_.update();
  for (const int64_t most_bins : {1, 7, 33, 1021, 200'000}) {
    const Bins bins = bin(index_, "a", 1, kSteps, most_bins);
    ASSERT_LE(static_cast<int64_t>(bins.highest.size()), most_bins);
    for (size_t at = 0; at < bins.highest.size(); ++at) {
      const int64_t begin = 1 + static_cast<int64_t>(at) * bins.width;
      const int64_t end = std::min<int64_t>(begin + bins.width - 1, kSteps);
      const int64_t spike = end / kEvery * kEvery;  // the last one up to `end`, so the highest
      ASSERT_EQ(bins.highest[at], spike >= begin ? static_cast<float>(1000 + spike) : 1.0F) << begin << " to " << end;
      const bool only_spike = begin == end && spike == end;
      ASSERT_EQ(bins.lowest[at], only_spike ? static_cast<float>(1000 + spike) : 1.0F) << begin << " to " << end;
    }
  }
  EXPECT_TRUE(std::isnan(bin(index_, "none", 1, 3, 1).highest.at(0)));
  EXPECT_TRUE(bin(index_, "a", 3, 2, 10).highest.empty());
  EXPECT_TRUE(std::isnan(bin(index_, "a", kSteps + 1, kSteps + 5, 2).lowest.at(1)));
}

}  // namespace
}  // namespace espalier::report
