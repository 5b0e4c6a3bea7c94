#include "eval/detoxify/scorer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "eval/detoxify/score_texts.h"

namespace espalier::eval {
namespace scorer_test {

namespace fs = std::filesystem;

// A line is answered with its id and, as its toxicity, a tenth of how often it says "bad"; "none" has no score.
const std::string kScorer =
    R"(while IFS= read -r line; do
         id=${line#*:}; id=${id%%,*}; rest=$line; n=0
         while [ "$rest" != "${rest#*bad}" ]; do rest=${rest#*bad}; n=$((n + 1)); done
         case $line in *none*) echo "{\"id\":$id,\"score\":null}";; *) echo "{\"id\":$id,\"score\":{\"toxicity\":0.$n}}";; esac
       done)";

class Scoring : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  ScoringPlan plan_of(const std::string& lines, const std::string& scorer) const {
    write_file_atomically(folder_ / "in", lines);
    return {.input = folder_ / "in", .output = folder_ / "out", .scorer = scorer, .first_wait_seconds = 0.01};
  }
  std::string error_of(const ScoringPlan& plan) const {
    try {
      score_texts(plan);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  std::string answer() const { return read_file(folder_ / "out"); }
  // The scorer that runs `end` after so many answers.
  static std::string ends_after(int count, const std::string& end) {
    const std::string loop = kScorer.substr(0, kScorer.rfind("done"));
    return concat("made=0; ", loop, "made=$((made + 1)); if [ $made = ", count, " ]; then ", end, "; fi; done");
  }
  // Lines with so many "bad" in the n-th text: n mod 7.
  static std::string lines(int count) {
    std::string text;
    for (int n = 0; n < count; ++n) {
      text += concat("{\"text\": \"text ", n);
      for (int word = 0; word < n % 7; ++word) text += " bad";
      text += "\"}\n";
    }
    return text;
  }

  const fs::path folder_ = fs::temp_directory_path() / concat("espalier_scoring_", ::getpid());
};

TEST_F(Scoring, AddsScoresInTheOrderOfTheLines) {
  for (const int count : {1, 7, 33})
    for (const int64_t processes : {1, 3}) {
      ScoringPlan plan = plan_of(lines(count), kScorer);
      plan.processes = processes;
      plan.batch_size = 4;
      plan.overwrite = true;
      EXPECT_EQ(score_texts(plan).num_texts, count);
      std::string expected;
      for (int n = 0; n < count; ++n) {
        std::string text = concat("text ", n);
        for (int word = 0; word < n % 7; ++word) text += " bad";
        expected += concat("{\"text\":\"", text,
                           "\",\"score\":{\"toxicity\":", n % 7 == 0 ? "0.0" : concat("0.", n % 7), "}}\n");
      }
      EXPECT_EQ(answer(), expected);
    }
}

TEST_F(Scoring, WhatIsBlankIsNotAskedForAndOtherFieldsStay) {
  const ScoringSummary done = score_texts(plan_of(R"({"id": 5, "text": "a<|endoftext|> bad", "more": [1, null]})"
                                                  "\n"
                                                  R"({"text": "<|endoftext|> \u3000\n"})"
                                                  "\n"
                                                  R"({"text": "none"})",
                                                  kScorer));
  EXPECT_EQ(answer(),
            "{\"id\":5,\"text\":\"a bad\",\"more\":[1,null],\"score\":{\"toxicity\":0.1}}\n"
            "{\"text\":\" 　\\n\",\"score\":null}\n{\"text\":\"none\",\"score\":null}\n");
  EXPECT_EQ(done.num_blank, 1);
  EXPECT_EQ(done.num_without, 1);
}

TEST_F(Scoring, LongTextsAreCutBetweenCharacters) {
  for (const std::string character : {"a", "é", "€", "𝄞"})
    for (const size_t before : {0, 1, 2, 3}) {
      std::string text(before, 'x');
      while (text.size() < 20490) text += character;
      const std::string cut = cut_for_scorer(text);
      EXPECT_EQ(cut.size(), before + (20480 - before) / character.size() * character.size());
      EXPECT_TRUE(text.starts_with(cut));
    }
  EXPECT_EQ(cut_for_scorer("short"), "short");
}

// More than pipes hold, in both directions: the scorer answers only once it has read half of the lines.
TEST_F(Scoring, PipesThatAreFullDoNotStopIt) {
  ScorerProcess process(
      "n=0; while IFS= read -r line; do all=$all$line'\n'; n=$((n + 1)); "
      "[ $n != 40 ] || { printf %s \"$all\"; all=; n=0; }; done");
  std::vector<std::string> lines;
  for (int n = 0; n < 80; ++n) lines.push_back(std::string(4'000, static_cast<char>('a' + n % 26)));
  const auto exchange = process.exchange(lines, 20);
  EXPECT_EQ(exchange.failure, "");
  EXPECT_EQ(exchange.answers, lines);
}

// It ends after every third answer; what it has answered is not asked again, or the answers would not be as many.
TEST_F(Scoring, AScorerThatEndsIsStartedAgain) {
  const ScoringSummary done = score_texts(plan_of(lines(10), ends_after(3, "exit 3")));
  EXPECT_EQ(done.num_restarts, 3);
  const std::string text = answer();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
  score_texts([&] {
    ScoringPlan whole = plan_of(lines(10), kScorer);
    whole.overwrite = true;
    return whole;
  }());
  EXPECT_EQ(answer(), text);
}

TEST_F(Scoring, WhatItHasScoredIsKeptWhenItIsGivenUp) {
  ScoringPlan plan = plan_of(lines(10), ends_after(3, concat("[ -e ", (folder_ / "works").string(), " ] || exit 9")));
  plan.batch_size = 2;
  plan.num_restarts = 0;
  EXPECT_NE(error_of(plan).find("ended with exit code 9. What it has scored is kept"), std::string::npos)
      << error_of(plan);
  EXPECT_FALSE(fs::exists(plan.output));
  write_file_atomically(folder_ / "works", "");
  EXPECT_EQ(score_texts(plan).num_kept, 2);
  const std::string in_parts = answer();
  fs::remove(plan.output);
  score_texts(plan);
  EXPECT_EQ(answer(), in_parts);
}

TEST_F(Scoring, OneThatDoesNotAnswerIsKilledInTime) {
  ScoringPlan plan = plan_of(lines(3), "sleep 1000 & wait");
  plan.answer_seconds = 0.1;
  plan.num_restarts = 1;
  const auto start = std::chrono::steady_clock::now();
  const std::string error = error_of(plan);
  EXPECT_NE(error.find("has answered 0 of 3 lines, and none for 0.1 seconds (does it flush"), std::string::npos)
      << error;
  EXPECT_NE(error.find("2 times in a row"), std::string::npos) << error;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(Scoring, ScorersThatAreSlowToEndEndTogether) {
  ScoringPlan plan = plan_of(lines(9), "sleep 0.2; " + kScorer + "; sleep 1.5");
  plan.processes = 3;
  plan.batch_size = 1;
  const auto start = std::chrono::steady_clock::now();
  score_texts(plan);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(3500));  // 4.7 s one after another
}

TEST_F(Scoring, WrongAnswersAreRefusedWithTheLine) {
  for (const auto& [scorer, reason] : std::vector<std::pair<std::string, std::string>>{
           {"cat", "to line 1: expected \"score\": an object of numbers, or null, it answered {\"id\":0"},
           {"sed -u 's/.*/{\"id\":9,\"score\":null}/'",
            "to line 1: expected an object with \"id\": 0, answers in the order"},
           {"sed -u 's/.*/{\"id\":0,\"score\":{\"toxicity\":\"high\"}}/'", "expected a number as \"toxicity\""},
           {"sed -u 's/.*/oops/'", "to line 1: line 1, column"},
           {"exit 4", "ended with exit code 4"}}) {
    ScoringPlan plan = plan_of(lines(2), scorer);
    plan.num_restarts = 0;
    plan.answer_seconds = 20;
    plan.batch_size = 1;
    plan.overwrite = true;
    EXPECT_NE(error_of(plan).find(reason), std::string::npos) << error_of(plan);
  }
  EXPECT_NE(error_of(plan_of("{\"txt\": 1}\n", "cat")).find("in:1: field 'text' is missing"), std::string::npos);
}

}  // namespace scorer_test
}  // namespace espalier::eval
