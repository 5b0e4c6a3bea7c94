// Prompts are those of lm_eval 0.4.13 for the same files; tests/oracle/lm_eval_oracle.py compares the stock files.
#include "eval/lm_eval_task.h"

#include <gtest/gtest.h>

#include "eval/yaml_file.h"

namespace espalier::eval {
namespace lm_eval_task_test {

constexpr const char* kColors = R"(task: colors
dataset_path: local
training_split: train
test_split: test
output_type: multiple_choice
doc_to_text: "Q: {{q}}\nA:"
doc_to_target: label
doc_to_choice: [red, blue]
metric_list:
  - metric: acc
  - metric: acc_norm
metadata: {version: 2.0}
)";

TaskFile colors_file(const std::string& content) {
  YamlFile yaml = parse_yaml(content, "colors.yaml");
  return {"tasks/colors/colors.yaml", std::move(yaml.content), std::move(yaml.places)};
}

std::vector<Document> color_documents(std::vector<Json> contents) {
  std::vector<Document> documents;
  for (Json& content : contents) documents.push_back({std::move(content), "d.jsonl:1"});
  return documents;
}

TEST(LmEvalTask, ChoicesFollowTheText) {
  Problems problems;
  const auto task = read_lm_eval_task(colors_file(kColors), std::nullopt, problems);
  ASSERT_TRUE(task) << problems.messages().front();
  EXPECT_EQ(task->task.version, 2.0);
  EXPECT_EQ(task->task.data.split, "test");
  const PreparedTask prepared =
      prepare_lm_eval(*task, color_documents({{{"q", "sky"}, {"label", 1}}}), {}, std::nullopt);
  ASSERT_EQ(prepared.questions.size(), 1U);
  const Question& question = prepared.questions[0];
  ASSERT_EQ(question.requests.size(), 2U);
  EXPECT_EQ(question.requests[0].context, "Q: sky\nA:");
  EXPECT_EQ(question.requests[0].continuation, " red");
  EXPECT_EQ(question.requests[1].continuation, " blue");
  // " red" is likelier; by characters, of which it has one less, it is not.
  const std::vector<Answers> answers = {{{-3.2, false}, {-4.0, false}}};
  const TaskResult result = score(prepared, answers, 0);
  EXPECT_EQ(result.metrics[0].value, 0);  // -3.2 is more than -4
  EXPECT_EQ(result.metrics[1].value, 1);  // -4 / 4 is more than -3.2 / 3
}

TEST(LmEvalTask, ExamplesStandBeforeTheQuestion) {
  Problems problems;
  const auto task = read_lm_eval_task(
      colors_file(std::string(kColors) + "description: 'Colors. '\nfewshot_config: {sampler: first_n}\n"), 2, problems);
  ASSERT_TRUE(task) << problems.messages().front();
  EXPECT_EQ(task->fewshot_split, "train");
  const PreparedTask prepared = prepare_lm_eval(
      *task, color_documents({{{"q", "sky"}, {"label", 1}}}),
      color_documents({{{"q", "sea"}, {"label", 1}}, {{"q", "rose"}, {"label", 0}}, {{"q", "x"}, {"label", 0}}}),
      std::nullopt);
  EXPECT_EQ(prepared.questions[0].requests[0].context, "Colors. Q: sea\nA: blue\n\nQ: rose\nA: red\n\nQ: sky\nA:");
}

TEST(LmEvalTask, WhatIsNotTakenIsNamedTogether) {
  Problems problems;
  const std::string content = R"(task: colors
test_split: test
output_type: multiple_choice
doc_to_text: !function utils.text
doc_to_target: "{% include 'a' %}"
doc_to_choice: [red, blue]
use_prompt: x
metric_list:
  - metric: bleu
  - metric: acc
    aggregation: median
filter_list:
  - name: f
    filter:
      - function: regex
)";
  EXPECT_FALSE(read_lm_eval_task(colors_file(content), std::nullopt, problems));
  std::string all;
  for (const std::string& message : problems.messages()) all += message + "\n";
  for (const char* part : {"colors.yaml:4: doc_to_text: '!function utils.text'",
                           "colors.yaml:5: doc_to_target: ", "colors.yaml:7: the key 'use_prompt' is not supported",
                           "colors.yaml:8: metric_list: the metric 'bleu'",
                           "acc: the aggregation \"median\" is not supported", "colors.yaml:12: filter_list: "})
    EXPECT_NE(all.find(part), std::string::npos) << part << "\n" << all;
}

TEST(LmEvalTask, DocumentsThatDoNotFitAreNamedTogether) {
  Problems problems;
  const auto task = read_lm_eval_task(colors_file(kColors), std::nullopt, problems);
  ASSERT_TRUE(task);
  try {
    prepare_lm_eval(*task, color_documents({{{"label", 1}}, {{"q", "a"}, {"label", 0.5}}}), {}, std::nullopt);
    FAIL();
  } catch (const UserError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("field 'q' is missing"), std::string::npos) << what;
    EXPECT_NE(what.find("does not name a choice"), std::string::npos) << what;
  }
}

}  // namespace lm_eval_task_test
}  // namespace espalier::eval
