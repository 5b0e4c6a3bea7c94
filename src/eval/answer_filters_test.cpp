// Expected values are those of lm_eval 0.4.13's filters and exact_match.
#include "eval/answer_filters.h"

#include <gtest/gtest.h>

#include "eval/text_metrics.h"
#include "eval/yaml_file.h"

namespace espalier::eval {
namespace answer_filters_test {

using Texts = std::vector<std::string>;

TaskFile file_of(const std::string& filters) {
  YamlFile yaml = parse_yaml("task: t\nfilter_list:\n" + filters, "t.yaml");
  return {"t.yaml", std::move(yaml.content), std::move(yaml.places)};
}

std::string filtered(const std::string& steps, Texts texts, Texts choices = {}) {
  Problems problems;
  const auto filters = read_answer_filters(file_of("  - name: f\n    filter:\n" + steps), 8, problems);
  EXPECT_TRUE(problems.empty()) << problems.messages().front();
  EXPECT_EQ(filters.size(), 1U);
  Question question;
  question.field_choices = std::move(choices);
  return filters.at(0).apply(question, std::move(texts));
}

constexpr const char* kTakeFirst = "      - function: take_first\n";

TEST(AnswerFilters, ExpressionsChooseAMatchAndAGroup) {
  const std::string last =
      concat("      - {function: regex, group_select: -1, regex_pattern: '(-?[$0-9.,]{2,})|(-?[0-9]+)'}\n", kTakeFirst);
  EXPECT_EQ(filtered(last, {"a 12 b 7", "x"}), "7");
  EXPECT_EQ(filtered(last, {"none"}), "[invalid]");
  EXPECT_EQ(
      filtered(concat("      - {function: regex, regex_pattern: '(a)|(b)?x', fallback: 'no'}\n", kTakeFirst), {"zx"}),
      "no");
}

TEST(AnswerFilters, TheMajorityOfWhatIsLeftCounts) {
  const std::string vote = concat("      - function: regex\n      - function: majority_vote\n", kTakeFirst);
  EXPECT_EQ(filtered(vote, {"#### 2", "#### 3", "#### 3 ", "none"}), "3");
  EXPECT_EQ(filtered(vote, {"#### 2", "#### 3"}), "2");
  EXPECT_EQ(filtered(concat("      - {function: take_first_k, k: 1}\n", vote), {"#### 2", "#### 3", "#### 3"}), "2");
}

TEST(AnswerFilters, TextsAreStrippedAndLowered) {
  EXPECT_EQ(
      filtered(concat("      - function: remove_whitespace\n      - function: lowercase\n", kTakeFirst), {"  ABÉ \n"}),
      "abé");
}

TEST(AnswerFilters, ChoicesAreFoundByLetterOrText) {
  const std::string steps = concat(
      "      - {function: multi_choice_regex, group_select: -1, ignore_case: true, ignore_punctuation: true, "
      "regex_pattern: '(\\([A-Z]\\))'}\n",
      kTakeFirst);
  const Texts choices = {"Guilty", "Guilty of Romance", "no, thanks!"};
  EXPECT_EQ(filtered(steps, {"it is (B) or (A) "}, choices), "(A)");
  EXPECT_EQ(filtered(steps, {"I say guilty of romance."}, choices), "(B)");
  EXPECT_EQ(filtered(steps, {"NO thanks"}, choices), "(C)");
  EXPECT_EQ(filtered(steps, {"answer: B"}, choices), "(B)");
  EXPECT_EQ(filtered(steps, {"nothing"}, choices), "[invalid]");
}

TEST(AnswerFilters, WhatIsNotSupportedIsNamedWithItsLine) {
  Problems problems;
  read_answer_filters(file_of("  - name: a\n    filter:\n      - function: map\n      - function: take_first\n"
                              "  - name: b\n    filter:\n      - function: lowercase\n"
                              "  - name: c\n    filter:\n      - {function: regex, group_select: 2, flags: x}\n"
                              "      - function: take_first\n"
                              "  - name: d\n    filter:\n      - {function: take_first_k, k: 9}\n"
                              "      - {function: regex, regex_pattern: '(?<n>a)'}\n      - function: take_first\n"
                              "  - filter: x\n"),
                      8, problems);
  std::string all;
  for (const std::string& message : problems.messages()) all += message + "\n";
  for (const char* part :
       {"t.yaml:2: filter_list: a: the filter 'map' is not supported", "filter_list: b: must end with take_first",
        "filter_list: c: regex: group_select 2 is not supported",
        "filter_list: c: regex: the key 'flags' is not supported",
        "filter_list: d: take_first_k: k is 9, and each document has 8 answers",
        "t.yaml:2: filter_list: the regular expression '(?<n>a)': ",
        "filter_list: expected entries with a name and a list of filters"})
    EXPECT_NE(all.find(part), std::string::npos) << part << "\n" << all;
}

double match(const char* ignored, const std::string& text, const Texts& targets) {
  Problems problems;
  const Json entry = parse_yaml(concat("metric: exact_match\n", ignored), "t.yaml").content;
  const AnswerScore score =
      exact_match(read_ignored_text(entry, IgnoredText::Punctuation::kAscii, "t.yaml:1", problems));
  EXPECT_TRUE(problems.empty());
  Question question;
  question.targets = targets;
  Answer answer;
  answer.text = text;
  return score(question, {&answer, 1}).value;
}

TEST(AnswerFilters, ExactMatchIgnoresWhatItIsToldTo) {
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"Yes", "yes"}, {"a.b-c!", "abc"}, {"x1", "x22"}, {"1,000$", "a #### 1000"}, {"é", "É"}};
  const std::vector<std::pair<const char*, std::vector<double>>> cases = {
      {"", {0, 0, 0, 0, 0}},
      {"ignore_case: true\n", {1, 0, 0, 0, 1}},
      {"ignore_punctuation: true\n", {0, 1, 0, 0, 0}},
      {"ignore_numbers: true\n", {0, 0, 1, 0, 0}},
      {"regexes_to_ignore: [',', '\\$', '(?s).*#### ']\n", {0, 0, 0, 1, 0}}};
  for (const auto& [ignored, values] : cases)
    for (size_t i = 0; i < pairs.size(); ++i)
      EXPECT_EQ(match(ignored, pairs[i].first, {pairs[i].second}), values[i]) << ignored << pairs[i].first;
  EXPECT_EQ(match("", "b", {"a", "b"}), 1);
}

}  // namespace answer_filters_test
}  // namespace espalier::eval
