// What is kept and every figure beside Megatron-DeepSpeed's own scripts: tests/data/detoxify, made by
// tests/oracle/detoxify_oracle.py.
#include "eval/detoxify/least_toxic.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "eval/detoxify/toxicity_metrics.h"

namespace espalier::eval {
namespace least_toxic_test {

namespace fs = std::filesystem;

const fs::path kGolden = "tests/data/detoxify";

class LeastToxic : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path file_of(const std::string& name, const std::string& lines) const {
    write_file_atomically(folder_ / name, lines);
    return folder_ / name;
  }
  // A file of the scores; a negative one is null.
  fs::path scored(const std::vector<double>& scores) const {
    std::string lines;
    for (size_t n = 0; n < scores.size(); ++n) {
      const Json score = scores[n] < 0 ? Json(nullptr) : Json({{"toxicity", scores[n]}});
      lines += Json({{"id", n}, {"prompt", concat("p", n / 2)}, {"score", score}}).dump() + "\n";
    }
    return file_of("scored", lines);
  }
  template <class Run>
  std::string error_of(Run run) const {
    try {
      run();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  const fs::path folder_ = fs::temp_directory_path() / concat("espalier_toxic_", ::getpid());
};

void expect_spread(const Spread& spread, double mean, double deviation) {
  EXPECT_NEAR(spread.mean, mean, 1e-12);
  EXPECT_NEAR(spread.deviation, deviation, 1e-12);
}

TEST_F(LeastToxic, KeepsWhatUpstreamsFilterKeepsInItsOrder) {
  const Json figures = parse_json<Json>(read_file(kGolden / "figures.json"), "figures.json")["filter"];
  const FilterSummary done = keep_least_toxic({.input = kGolden / "scored.jsonl", .output = folder_ / "kept"});
  EXPECT_EQ(read_file(folder_ / "kept"), read_file(kGolden / "kept.jsonl"));
  EXPECT_EQ(done.num_lines, figures["lines"]);
  EXPECT_EQ(done.all.count, figures["scored"]);
  for (const auto& [name, spread] : {std::pair("all", done.all), std::pair("toxic", done.toxic),
                                     std::pair("nontoxic", done.nontoxic), std::pair("kept", done.kept)})
    expect_spread(spread, figures[name][0], figures[name][1]);
  EXPECT_EQ(done.lowest_kept, figures["range"][0]);
  EXPECT_EQ(done.highest_kept, figures["range"][1]);
}

TEST_F(LeastToxic, MeasuresWhatUpstreamMeasures) {
  const Json figures = parse_json<Json>(read_file(kGolden / "figures.json"), "figures.json");
  const ToxicityMetrics found =
      measure_toxicity({.input = kGolden / "continuations.jsonl", .prompts = kGolden / "prompts.jsonl"});
  for (const auto& [name, group] :
       {std::pair("all", found.all), std::pair("toxic", found.toxic), std::pair("nontoxic", found.nontoxic)}) {
    const Json& expected = figures["prompts"][name];
    EXPECT_EQ(group.maximum.count, expected[0]);
    expect_spread(group.maximum, expected[1], expected[2]);
    EXPECT_NEAR(group.probability, expected[3].get<double>(), 1e-12);
  }
  ASSERT_EQ(found.averages.size(), figures["averages"].size());
  for (const auto& [name, spread] : found.averages)
    EXPECT_NEAR(spread.mean, figures["averages"][name].get<double>(), 1e-12);
  EXPECT_EQ(found.num_silent, 1);
}

// By a plain loop: of equal scores the first lines, null never.
TEST_F(LeastToxic, KeepsTheShareOfAllLines) {
  for (const size_t count : {1, 7, 33})
    for (const double share : {0.5, 0.29, 1.0}) {
      std::vector<double> scores;
      for (size_t n = 0; n < count; ++n) scores.push_back(n % 5 == 3 ? -1 : static_cast<double>(n * 7 % 4) / 4);
      const auto wanted = static_cast<size_t>(static_cast<double>(count) * share);
      std::vector<size_t> expected;
      for (const double score : {0.0, 0.25, 0.5, 0.75})
        for (size_t n = 0; n < count; ++n)
          if (scores[n] == score && expected.size() < wanted) expected.push_back(n);
      const FilterPlan plan{
          .input = scored(scores), .output = folder_ / "kept", .share = share, .seed = 3, .overwrite = true};
      if (expected.empty()) {
        EXPECT_NE(error_of([&] { keep_least_toxic(plan); }).find("nothing is left of"), std::string::npos);
        continue;
      }
      EXPECT_EQ(keep_least_toxic(plan).kept.count, static_cast<int64_t>(expected.size()));
      std::vector<size_t> found;
      const std::string kept = read_file(folder_ / "kept");
      for (size_t at = 0, end; (end = kept.find('\n', at)) != std::string::npos; at = end + 1)
        found.push_back(parse_json<Json>(kept.substr(at, end - at), "kept")["id"]);
      std::sort(found.begin(), found.end());
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(found, expected) << count << " " << share;
    }
}

TEST_F(LeastToxic, SaysWhatIsWrongWithTheFiles) {
  const auto filter = [&](const std::string& lines) {
    return error_of([&] { keep_least_toxic({.input = file_of("in", lines), .output = folder_ / "kept"}); });
  };
  EXPECT_NE(filter("{\"text\": \"a\"}\n").find("in:1: no member score"), std::string::npos);
  EXPECT_NE(filter("{\"score\": null}\n{\"score\": {\"threat\": 1}}\n").find("in:2: field 'score.toxicity' is missing"),
            std::string::npos);
  EXPECT_NE(filter("{\"score\": {\"toxicity\": \"NaN\"}}\n").find("in:1: score.toxicity is nan"), std::string::npos);
  EXPECT_NE(filter("").find("has no lines"), std::string::npos);
  EXPECT_NE(filter("[1]\n").find("in:1: no member score"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "kept"));
  file_of("kept", "old");
  EXPECT_NE(filter("{\"score\": {\"toxicity\": 0}}\n").find("--overwrite"), std::string::npos);

  const auto measure = [&](const std::string& prompts, int64_t texts_of_prompt) {
    return error_of([&] {
      measure_toxicity({.input = scored({0.1, 0.9, -1, 0.2}),
                        .prompts = file_of("prompts", prompts),
                        .texts_of_prompt = texts_of_prompt});
    });
  };
  EXPECT_EQ(measure("{\"prompt\": \"p0\"}\n{\"prompt\": {\"text\": \"p1\"}}\n", 2), "");
  EXPECT_NE(measure("{\"prompt\": \"p0\"}\n", 2).find("has 4 texts; 1 prompt"), std::string::npos);
  EXPECT_NE(
      measure("{\"prompt\": \"p0\"}\n{\"prompt\": \"p0\"}\n", 2).find("scored:3: continues another prompt than line 2"),
      std::string::npos);
  EXPECT_NE(measure("{\"text\": \"p0\"}\n", 4).find("prompts:1: no member prompt"), std::string::npos);
}

}  // namespace least_toxic_test
}  // namespace espalier::eval
