#include "report/metrics_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "report/json_line.h"

namespace espalier::report {
namespace {

namespace fs = std::filesystem;

class MetricsFile : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  Metrics read(const std::string& text, const std::vector<std::string>& names = {}) const {
    write_file_atomically(folder_ / "metrics.jsonl", text);
    return read_metrics(folder_ / "metrics.jsonl", names);
  }
  const fs::path folder_ = fs::temp_directory_path() / "espalier_metrics_reader_test";
};

TEST(JsonLine, MembersAreFoundWithNestedValuesAndEscapes) {
  std::string seen;
  EXPECT_TRUE(
      for_each_member(R"( {"a": -1.5e3, "b\"": {"c": [1, "}"]}, "d":"x\\", "e" : null } )",
                      [&](std::string_view key, std::string_view value) { seen += concat(key, "=", value, ";"); }));
  EXPECT_EQ(seen, R"(a=-1.5e3;b\"={"c": [1, "}"]};d="x\\";e=null;)");
  EXPECT_EQ(text_of(R"("\u00e4\"")"), "ä\"");
  EXPECT_EQ(number_of("-1.5e3"), -1500);
  EXPECT_TRUE(std::isnan(number_of("null")));
  EXPECT_TRUE(std::isnan(number_of("1x")));
}

TEST(JsonLine, WhatIsCutOffOrNoObjectIsRefused) {
  const std::string whole = R"({"a": 1, "b": {"c": "d"}})";
  const auto ignore = [](std::string_view, std::string_view) {};
  EXPECT_TRUE(for_each_member(whole, ignore));
  EXPECT_TRUE(for_each_member("{}", ignore));
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(for_each_member(whole.substr(0, length), ignore)) << whole.substr(0, length);
  for (const char* text : {"", "[]", "1", "{} x", "{\"a\" 1}", "{\"a\":}", "{,}", "{\"a\":1,}"})
    EXPECT_FALSE(for_each_member(text, ignore)) << text;
}

TEST_F(MetricsFile, ColumnsHoldTheNumbersOfEachStep) {
  const Metrics metrics = read(
      "{\"step\": 1, \"lm_loss\": 9.5, \"lm_loss_by_data_set\": {\"a\": 9}, \"tokens_per_second\": 100}\n"
      "{\"step\": 2, \"lm_loss\": null, \"tokens_per_second\": 200.5}\n"
      "{\"step\": 2, \"validation\": {\"wiki\": {\"lm_loss\": 9.25, \"ppl\": 10404.5}}}\n"
      "{\"step\": 3, \"lm_loss\": 8, \"mtp_loss\": 7}\n",
      {"tokens_per_second"});
  EXPECT_EQ(metrics.steps, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(metrics.loss_column(), "lm_loss");
  EXPECT_EQ(metrics.columns.at("lm_loss")[0], 9.5);
  EXPECT_TRUE(std::isnan(metrics.columns.at("lm_loss")[1]));
  EXPECT_EQ(metrics.columns.at("tokens_per_second")[1], 200.5);
  EXPECT_TRUE(std::isnan(metrics.columns.at("mtp_loss")[0])) << "it came later";
  EXPECT_EQ(metrics.columns.at("mtp_loss")[2], 7);
  ASSERT_EQ(metrics.evaluations.size(), 2U);
  EXPECT_EQ(metrics.evaluations[0].set, "wiki");
  EXPECT_EQ(metrics.evaluations[0].value, 9.25);
  EXPECT_EQ(metrics.num_bad_lines, 0);
}

TEST_F(MetricsFile, LastLineThatIsCutOffIsLeftOutAndCounted) {
  const std::string last = "{\"step\": 3, \"lm_loss\": 7}";
  for (size_t length = 1; length < last.size(); ++length) {
    const Metrics metrics =
        read("{\"step\": 1, \"lm_loss\": 9}\n{\"step\": 2, \"lm_loss\": 8}\n" + last.substr(0, length));
    EXPECT_EQ(metrics.steps, (std::vector<int64_t>{1, 2})) << length;
    EXPECT_EQ(metrics.num_bad_lines, 1) << length;
  }
}

TEST_F(MetricsFile, StepsThatWereTrainedAgainReplaceThoseBefore) {
  const Metrics metrics = read(
      "{\"step\": 1, \"lm_loss\": 9}\n{\"step\": 2, \"lm_loss\": 8}\n{\"step\": 3, \"lm_loss\": 7}\n"
      "{\"step\": 3, \"validation\": {\"a\": {\"lm_loss\": 1}}}\n"
      "{\"step\": 2, \"lm_loss\": 6}\n");
  EXPECT_EQ(metrics.steps, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(metrics.columns.at("lm_loss"), (std::vector<double>{9, 6}));
  EXPECT_TRUE(metrics.evaluations.empty());
}

TEST_F(MetricsFile, LastRecordsAreThoseOfTheWholeFile) {
  std::string text;
  for (int step = 1; step <= 5000; ++step)
    text += concat("{\"step\": ", step, ", \"lm_loss\": ", 1.0 / step, ", \"sample_hash\": \"0123456789abcdef\"}\n");
  write_file_atomically(folder_ / "metrics.jsonl", text + "{\"step\": 50");
  const Metrics last = read_last_metrics(folder_ / "metrics.jsonl", {}, 33);
  ASSERT_GE(last.steps.size(), 33U);
  EXPECT_LT(last.steps.size(), 5000U) << "not the whole file";
  EXPECT_EQ(last.steps.back(), 5000);
  EXPECT_EQ(last.columns.at("lm_loss").back(), 1.0 / 5000);
  EXPECT_EQ(read_last_metrics(folder_ / "metrics.jsonl", {}, 6000).steps.size(), 5000U);
  EXPECT_TRUE(read_last_metrics(folder_ / "none", {}, 5).steps.empty());
  EXPECT_TRUE(read("").steps.empty());
}

}  // namespace
}  // namespace espalier::report
