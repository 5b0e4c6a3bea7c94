// Prompts are those of lm_eval 0.4.13 for the same files; tests/oracle/lm_eval_oracle.py compares the stock files.
#include "eval/lm_eval_task.h"

#include <gtest/gtest.h>

#include "eval/results.h"
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
  const auto task = read_lm_eval_task(colors_file(kColors), {}, problems);
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
      colors_file(std::string(kColors) + "description: 'Colors. '\nfewshot_config: {sampler: first_n}\n"),
      {.num_fewshot = 2}, problems);
  ASSERT_TRUE(task) << problems.messages().front();
  EXPECT_EQ(task->fewshot_split, "train");
  const PreparedTask prepared = prepare_lm_eval(
      *task, color_documents({{{"q", "sky"}, {"label", 1}}}),
      color_documents({{{"q", "sea"}, {"label", 1}}, {{"q", "rose"}, {"label", 0}}, {{"q", "x"}, {"label", 0}}}),
      std::nullopt);
  EXPECT_EQ(prepared.questions[0].requests[0].context, "Colors. Q: sea\nA: blue\n\nQ: rose\nA: red\n\nQ: sky\nA:");
}

constexpr const char* kSums = R"(task: sums
dataset_path: local
training_split: train
test_split: test
output_type: generate_until
doc_to_text: "Q: {{q}}\nA:"
doc_to_target: answers
generation_kwargs:
  until: ["\n", "Q:"]
  do_sample: false
  temperature: 0.7
  max_new_tokens: 9
filter_list:
  - name: strict
    filter: [{function: regex, regex_pattern: '= (\d+)'}, {function: take_first}]
  - name: as-it-is
    filter: [{function: remove_whitespace}, {function: take_first}]
metric_list:
  - metric: exact_match
    ignore_case: true
)";

TEST(LmEvalTask, TextsAreGeneratedFilteredAndCompared) {
  Problems problems;
  const auto task = read_lm_eval_task(colors_file(kSums), {.num_fewshot = 1}, problems);
  ASSERT_TRUE(task) << problems.messages().front();
  const PreparedTask prepared = prepare_lm_eval(
      *task, color_documents({{{"q", "1+1"}, {"answers", {"2", "Two"}}}, {{"q", "1+2"}, {"answers", {"3"}}}}),
      color_documents({{{"q", "0+1"}, {"answers", {"1", "one"}}}}), std::nullopt);
  const Request& request = prepared.questions.at(0).requests.at(0);
  EXPECT_EQ(request.kind, RequestKind::kGenerate);
  EXPECT_EQ(request.context, "Q: 0+1\nA: 1\n\nQ: 1+1\nA:");
  EXPECT_EQ(request.generation->until, (std::vector<std::string>{"\n", "Q:"}));
  EXPECT_EQ(request.generation->max_tokens, 9);
  EXPECT_EQ(request.generation->temperature, 0);  // nothing is drawn
  std::vector<Answers> answers(2, Answers(1));
  answers[0][0].text = " two ";
  answers[1][0].text = "it is = 3";
  const TaskResult result = score(prepared, answers, 0);
  ASSERT_EQ(result.metrics.size(), 2U);
  EXPECT_EQ(result.metrics[0].filter, "strict");
  EXPECT_EQ(result.metrics[0].value, 0.5);  // "[invalid]" and "3"
  EXPECT_EQ(result.metrics[1].filter, "as-it-is");
  EXPECT_EQ(result.metrics[1].value, 0.5);  // "two" and "it is = 3"
  EXPECT_NE(results_markdown({result}).find("|exact_match:strict"), std::string::npos) << results_markdown({result});
  EXPECT_NE(results_csv({result}).find("\nsums,exact_match:as-it-is,0.5,"), std::string::npos) << results_csv({result});
}

TEST(LmEvalTask, RepeatedTextsAreDrawn) {
  Problems problems;
  std::string content = kSums;
  content.replace(content.find("do_sample: false"), 16, "do_sample: true");
  const auto drawn = read_lm_eval_task(colors_file(content + "repeats: 3\n"), {.max_gen_toks = 4}, problems);
  ASSERT_TRUE(drawn) << problems.messages().front();
  EXPECT_EQ(drawn->task.repeats, 3);
  EXPECT_EQ(drawn->task.generation->temperature, 0.7);
  EXPECT_EQ(drawn->task.generation->max_tokens, 4);
  const PreparedTask prepared =
      prepare_lm_eval(*drawn, color_documents({{{"q", "1+1"}, {"answers", {"2"}}}}), {}, std::nullopt);
  EXPECT_EQ(prepared.questions.at(0).requests.size(), 3U);
}

TEST(LmEvalTask, WhatGenerationDoesNotSupportIsNamed) {
  Problems problems;
  const std::string content = R"(task: sums
test_split: test
doc_to_text: q
doc_to_target: a
generation_kwargs: {num_beams: 4, until: ["", 3], do_sample: true, penalty: 2, max_gen_toks: 0}
repeats: 0
metric_list: [{metric: rouge}, {metric: f1, hf_evaluate: true}]
)";
  EXPECT_FALSE(read_lm_eval_task(colors_file(content), {}, problems));
  std::string all;
  for (const std::string& message : problems.messages()) all += message + "\n";
  for (const char* part :
       {"colors.yaml:5: generation_kwargs: num_beams 4 is not supported; 1 is", "until: \"\" is not a text",
        "until: 3 is not a text", "do_sample: true needs a temperature above 0", "the key 'penalty' is not supported",
        "max_gen_toks 0 is not within 1 to", "colors.yaml:6: repeats: 0 is not within 1 to 1,000",
        "colors.yaml:7: metric_list: the metric 'rouge' is not supported; of such tasks these are: bleu, chrf, "
        "chrf++, exact_match, ter"})
    EXPECT_NE(all.find(part), std::string::npos) << part << "\n" << all;
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
  EXPECT_FALSE(read_lm_eval_task(colors_file(content), {}, problems));
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
  const auto task = read_lm_eval_task(colors_file(kColors), {}, problems);
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
