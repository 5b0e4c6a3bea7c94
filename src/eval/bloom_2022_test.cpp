// Against what lm_eval 0.3.0 makes of made-up documents (tests/data/eval/bloom-tasks.json).
#include "eval/bloom_2022.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/file.h"

namespace espalier::eval {
namespace bloom_2022_test {

Json golden() { return Json::parse(read_file("tests/data/eval/bloom-tasks.json")); }

const Task& find_task(const std::string& name) {
  for (const Task& task : bloom_2022_tasks())
    if (task.name == name) return task;
  throw std::runtime_error("no task " + name);
}

// What the golden file feeds in: a log-likelihood, or whether the answer is greedy. lambada asks once for both.
std::vector<Answer> answers_of(const Json& one) {
  std::vector<Answer> answers;
  for (size_t i = 0; i < one["requests"].size(); ++i) {
    if (i == 0 || one["requests"][i]["args"] != one["requests"][i - 1]["args"]) answers.emplace_back();
    const Json& result = one["results_in"][i];
    if (result.is_boolean())
      answers.back().is_greedy = result.get<bool>();
    else
      answers.back().log_likelihood = result.get<double>();
  }
  return answers;
}

// A metric of one document, as the harness has it: a number, or what its aggregation reads.
void expect_item(const Item& item, const Json& expected) {
  if (!expected.is_array()) {
    EXPECT_EQ(item.value, expected.is_boolean() ? (expected.get<bool>() ? 1 : 0) : expected.get<double>());
  } else if (expected[1].is_object()) {  // multirc: (called right, document)
    EXPECT_EQ(item.value == 1, expected[0].get<bool>());
    EXPECT_EQ(item.reference, expected[1]["label"].get<double>());
    EXPECT_EQ(item.group, std::to_string(expected[1]["idx"]["paragraph"].get<int>()));
    EXPECT_EQ(item.member, std::to_string(expected[1]["idx"]["question"].get<int>()));
  } else {  // (right, said[, question])
    EXPECT_EQ(item.reference, expected[0].get<double>());
    EXPECT_EQ(item.value, expected[1].is_boolean() ? (expected[1].get<bool>() ? 1 : 0) : expected[1].get<double>());
    if (expected.size() == 3) {
      EXPECT_EQ(item.group, expected[2].get<std::string>());
    }
  }
}

TEST(Bloom2022, PromptsAndScoresAreThoseOfTheHarness) {
  std::set<std::string> seen;
  const Json cases = golden()["cases"];
  for (const Json& one : cases) {
    const Task& task = find_task(one["task"]);
    SCOPED_TRACE(task.name);
    seen.insert(task.name);
    const Question question = task.ask(Fields(one["doc"], "golden"));
    const std::vector<Answer> answers = answers_of(one);
    ASSERT_EQ(question.requests.size(), answers.size());
    size_t asked = 0;
    for (const Json& request : one["requests"]) {
      if (request["index"] == 1 && asked == question.requests.size()) --asked;  // lambada's second
      EXPECT_EQ(question.requests[asked].context, request["args"][0].get<std::string>());
      EXPECT_EQ(question.requests[asked++].continuation, request["args"][1].get<std::string>());
    }
    EXPECT_EQ(question.target, one["target"].get<std::string>());
    ASSERT_EQ(task.metrics.size(), one["process_results"].size());
    for (const Metric& metric : task.metrics)
      expect_item(metric.score(question, answers), one["process_results"][metric.name]);
  }
  EXPECT_EQ(seen.size(), 28u);
  EXPECT_EQ(bloom_2022_tasks().size(), 28u);
}

// BLOOM's published result files (reference: bigscience evaluation/results/tr11).
TEST(Bloom2022, VersionsAreThoseOfThePublishedResults) {
  std::set<std::string> ones;
  for (const Task& task : bloom_2022_tasks()) {
    if (task.version.get<int>() != 0) ones.insert(task.name);
  }
  EXPECT_EQ(ones, (std::set<std::string>{"boolq", "multirc", "race", "wnli"}));
}

std::string refusal(const std::string& task, const Json& document) {
  try {
    find_task(task).ask(Fields(document, "f:3"));
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Bloom2022, DocumentsOfAnotherShapeAreRefusedByField) {
  EXPECT_EQ(refusal("piqa", {{"goal", "g"}, {"sol1", "a"}, {"label", 0}}), "f:3: field 'sol2' is missing");
  EXPECT_EQ(refusal("piqa", {{"goal", "g"}, {"sol1", "a"}, {"sol2", 7}, {"label", 0}}),
            "f:3: field 'sol2' is 7; it should be a string");
  EXPECT_EQ(refusal("piqa", {{"goal", "g"}, {"sol1", "a"}, {"sol2", "b"}, {"label", 2}}),
            "f:3: field 'label' is 2; it should be a whole number from 0 to 1");
  EXPECT_EQ(
      refusal("rte", {{"sentence1", "a"}, {"sentence2", "b"}, {"label", "maybe"}}),
      "f:3: field 'label' is \"maybe\"; it should be the number of a class from 0 to 1 (entailment, not_entailment)");
  EXPECT_EQ(refusal("lambada", {{"text", "word"}}), "f:3: field 'text' has no space before a last word");
  EXPECT_EQ(refusal("winogrande", {{"sentence", "no gap"}, {"option1", "a"}, {"option2", "b"}, {"answer", "1"}}),
            "f:3: field 'sentence' has no _ to be filled");
  EXPECT_EQ(refusal("triviaqa", {{"question", "q"}, {"answer", {{"value", "v"}, {"aliases", Json::array()}}}}),
            "f:3: field 'answer.aliases' is empty");
  EXPECT_EQ(refusal("headqa", {{"qtext", "q"}, {"answers", Json::array({"a"})}, {"ra", 1}}),
            "f:3: field 'answers' is [\"a\"]; it should be a list of objects");
  EXPECT_EQ(refusal("openbookqa", {{"question_stem", "q"}, {"choices", {{"text", {"a", "b"}}}}, {"answerKey", "C"}}),
            "f:3: field 'answerKey' is 'C', but there are only 2 choices");
  EXPECT_EQ(refusal("arc_easy", {{"question", "q"}, {"choices", {{"text", {"a", "b"}}}}, {"answerKey", "F"}}),
            "f:3: field 'answerKey' is 'F', none of ABCDE");
}

TEST(Bloom2022, RaceGathersTheQuestionsOfAnArticle) {
  const Json options = {"a", "b", "c", "d"};
  std::vector<Json> records;
  for (const auto& [article, question] : {std::pair{"Y", "1"}, {"X", "2"}, {"Y", "3"}})
    records.push_back({{"article", article}, {"question", question}, {"answer", "D"}, {"options", options}});
  const std::vector<Json> gathered = find_task("race").gather(records);
  ASSERT_EQ(gathered.size(), 2u);
  EXPECT_EQ(gathered[0]["article"], "Y");
  EXPECT_EQ(find_task("race").ask(Fields(gathered[0], "")).requests[3].context,
            "Article: Y\n\nQuestion: 1\nAnswer: d\n3");
}

}  // namespace bloom_2022_test
}  // namespace espalier::eval
