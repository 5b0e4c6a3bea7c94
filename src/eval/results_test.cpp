#include "eval/results.h"

#include <gtest/gtest.h>

#include "eval/bloom_2022.h"

namespace espalier::eval {
namespace results_test {

PreparedTask prepared(const std::string& name, std::vector<Json> documents) {
  PreparedTask made;
  for (const Task& task : bloom_2022_tasks())
    if (task.name == name) made.task = task;
  for (Json& document : documents) {
    made.documents.push_back({std::move(document), ""});
    made.questions.push_back(made.task.ask(Fields(made.documents.back().content, "")));
  }
  made.num_available = 9;
  return made;
}

class Results : public testing::Test {
 protected:
  Results() {
    const Json pair = {{"sentence1", "a"}, {"sentence2", "b"}, {"label", 1}};
    prepared_ = {prepared("wnli", {pair, pair, pair}),
                 prepared("mrpc", {pair, pair, {{"sentence1", "a"}, {"sentence2", "b"}, {"label", 0}}})};
    const std::vector<Answers> first = {
        {{-1, false}, {-2, false}}, {{-2, false}, {-1, true}}, {{-1, true}, {-1.5, false}}};
    answers_ = {first, first};
    for (size_t i = 0; i < 2; ++i) results_.push_back(score(prepared_[i], answers_[i], 0));
    facts_.model = "answers.jsonl";
    facts_.date = 1700000000.5;
    facts_.limit = 3;
  }

  std::vector<PreparedTask> prepared_;
  std::vector<std::vector<Answers>> answers_;
  std::vector<TaskResult> results_;
  EvaluationFacts facts_;
};

// acc of wnli: two of three, sample deviation sqrt(1/3), over sqrt(3). mrpc: one hit, one miss, one false alarm.
constexpr double kError = 1.0 / 3;

TEST_F(Results, TheLayoutOf2022) {
  const Json all = Json::parse(results_json(results_, facts_, ResultLayout::kLmEval2022));
  EXPECT_EQ(all["task_set"], "bloom-2022");
  EXPECT_EQ(all["tokenization"], "separate");
  EXPECT_EQ(all["versions"], (Json{{"wnli", 1}, {"mrpc", 0}}));
  EXPECT_DOUBLE_EQ(all["results"]["wnli"]["acc"], 2.0 / 3);
  EXPECT_DOUBLE_EQ(all["results"]["wnli"]["acc_stderr"], kError);
  EXPECT_DOUBLE_EQ(all["results"]["mrpc"]["acc"], 1.0 / 3);
  EXPECT_DOUBLE_EQ(all["results"]["mrpc"]["f1"], 0.5);
  EXPECT_FALSE(all["results"]["mrpc"].contains("f1_stderr"));  // no resamples
}

TEST_F(Results, TheLayoutOf04) {
  const Json all = Json::parse(results_json(results_, facts_, ResultLayout::kLmEval04));
  EXPECT_EQ(all["results"]["mrpc"]["alias"], "mrpc");
  EXPECT_DOUBLE_EQ(all["results"]["mrpc"]["acc,none"], 1.0 / 3);
  EXPECT_EQ(all["results"]["mrpc"]["f1_stderr,none"], "N/A");
  EXPECT_DOUBLE_EQ(all["results"]["wnli"]["acc_stderr,none"], kError);
  EXPECT_EQ(all["n-samples"]["wnli"], (Json{{"original", 9}, {"effective", 3}}));
  EXPECT_EQ(all["n-shot"], (Json{{"wnli", 0}, {"mrpc", 0}}));
  EXPECT_EQ(all["higher_is_better"]["mrpc"], (Json{{"acc", true}, {"f1", true}}));
  EXPECT_EQ(all["group_subtasks"]["wnli"], Json::array());
  EXPECT_EQ(all["configs"]["wnli"]["metadata"]["version"], 1);
  EXPECT_EQ(all["config"]["limit"], 3);
  EXPECT_EQ(all["config"]["fewshot_seed"], 1234);
  EXPECT_EQ(all["date"], 1700000000.5);
  EXPECT_TRUE(all["git_hash"].is_null());
}

TEST_F(Results, TablesForSpreadsheetsAndForReading) {
  results_[1].metrics[1].error = 0.00125;
  EXPECT_EQ(results_csv(results_),
            "task,metric,value,err,version\n"
            "mrpc,acc,0.3333333333333333,0.33333333333333337,0\n"
            "mrpc,f1,0.5,0.00125,0\n"
            "wnli,acc,0.6666666666666666,0.33333333333333337,1\n");
  results_[0].metrics[0].error.reset();
  EXPECT_EQ(results_markdown(results_),
            "|Task|Version|Metric|   |Value |   |Stderr|\n"
            "|----|------:|------|---|-----:|---|-----:|\n"
            "|wnli|      1|acc   |\u2191  |0.6667|   |      |\n"
            "|mrpc|      0|acc   |\u2191  |0.3333|\u00b1  |0.3333|\n"
            "|    |       |f1    |\u2191  |0.5000|\u00b1  |0.0013|\n");
}

// The sums are hashlib's, of json.dumps(doc, indent=2, ensure_ascii=False) and of the texts.
TEST_F(Results, EveryDocumentIsLogged) {
  PreparedTask one = prepared("lambada", {{{"text", "caf\u00e9 \"b\"\n"},
                                           {"idx", {{"a", {1, 2}}, {"e", Json::array()}, {"o", Json::object()}}},
                                           {"n", nullptr},
                                           {"f", true}}});
  const std::vector<Answers> answers = {{{-1e-05, true}}};
  const Json line = Json::parse(sample_lines(score(one, answers, 0), answers));
  EXPECT_EQ(line["doc_id"], 0);
  EXPECT_EQ(line["doc"], one.documents[0].content);
  EXPECT_EQ(line["target"], " \"b\"\n");
  EXPECT_EQ(line["arguments"], (Json{{"gen_args_0", {{"arg_0", "caf\u00e9"}, {"arg_1", " \"b\"\n"}}}}));
  EXPECT_EQ(line["resps"].dump(), R"([[["-1e-05","True"]]])");
  EXPECT_EQ(line["filtered_resps"].dump(), R"([["-1e-05","True"]])");
  EXPECT_EQ(line["metrics"].dump(), R"(["ppl","acc"])");
  EXPECT_EQ(line["doc_hash"], "846e0df4a1d08c36e1efd36328cb2d3345676d7db34a85f38c6d1e228fefa122");
  EXPECT_EQ(line["prompt_hash"], "850f7dc43910ff890f8879c0ed26fe697c93a067ad93a7d50f466a7028a9bf4e");
  EXPECT_EQ(line["target_hash"], "6f5da902f19c7edc8215d9b6ec7c4b5273313071771bbce0c624cc13ce20bc94");
  EXPECT_EQ(line["ppl"], -1e-05);
  EXPECT_EQ(line["acc"], 1);
  const std::string pairs = sample_lines(results_[1], answers_[1]);
  EXPECT_EQ(Json::parse(pairs.substr(0, pairs.find('\n')))["f1"].dump(), "[1.0,1.0]");
}

}  // namespace results_test
}  // namespace espalier::eval
