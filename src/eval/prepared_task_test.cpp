#include "eval/prepared_task.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "eval/bloom_2022.h"
#include "tests/support/oracle.h"

namespace espalier::eval {
namespace prepared_task_test {

namespace fs = std::filesystem;

const Task& bloom_task(const std::string& name) {
  for (const Task& task : bloom_2022_tasks())
    if (task.name == name) return task;
  throw std::runtime_error("no task " + name);
}

class TaskFiles : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string written(const std::string& name, const std::string& content) const {
    write_file_atomically(folder_ / name, content);
    return folder_ / name;
  }
  // The message with the folder cut out of it.
  template <class Action>
  std::string refusal(const Action& action, ExitCode code = ExitCode::kBadData) const {
    try {
      action();
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), code);
      std::string message = error.what();
      const std::string prefix = folder_.string() + "/";
      for (size_t at; (at = message.find(prefix)) != std::string::npos;) message.erase(at, prefix.size());
      return message;
    }
    return "no error";
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / concat("espalier_tasks_", ::getpid());
};

TEST_F(TaskFiles, JsonLinesAndTablesAreRead) {
  const std::string lines =
      written("a.jsonl", "{\"sentence\": \"x\\ty\", \"label\": 1, \"idx\": 3}\n\n{\"label\": 0}\r\n");
  const std::vector<Document> documents = read_documents(lines, {"sentence", "label"});
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].content, (Json{{"sentence", "x\ty"}, {"label", 1}}));
  EXPECT_EQ(documents[1].place, lines + ":3");
  const std::vector<Document> rows = read_documents(written("a.tsv", "sentence\tlabel\nit \"is\"\t1\r\n\nno\t0"), {});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].content, (Json{{"sentence", "it \"is\""}, {"label", "1"}}));
  EXPECT_EQ(bloom_task("sst").ask(Fields(rows[0].content, "")).gold, 0u);
}

TEST_F(TaskFiles, WhatIsNoDocumentIsRefusedWithItsLine) {
  EXPECT_EQ(refusal([&] { read_documents(written("a.jsonl", "{\"a\": 1}\n[1]\n{\n"), {}); }),
            "2 problems:\n  - a.jsonl:2: expected a JSON object\n  - a.jsonl:3: expected JSON, found the end of the "
            "text too early; it may be cut off");
  EXPECT_EQ(refusal([&] { read_documents(written("a.tsv", "a\tb\n1\n"), {}); }),
            "a.tsv:2: 1 field; the first line names 2");
  EXPECT_EQ(refusal([&] { read_documents(written("b.tsv", "a\tb\n1\t\xff\n"), {}); }),
            "b.tsv:2: byte 3 of the line is not UTF-8");
  EXPECT_EQ(refusal([&] { read_documents(written("a.jsonl", "\n"), {}); }), "'a.jsonl' has no document");
  const std::string parquet = refusal([&] { read_documents(written("x.parquet", "PAR1...."), {}); });
  EXPECT_TRUE(parquet.starts_with("'x.parquet' is a Parquet file; documents are read as JSONL. Convert it with: "))
      << parquet;
  EXPECT_NE(parquet.find("to_json('x.jsonl', orient='records', lines=True"), std::string::npos) << parquet;
}

TEST_F(TaskFiles, FilesOfTasksAreFoundByName) {
  written("piqa.jsonl.gz", "");
  written("sst.tsv", "");
  written("qnli.parquet", "PAR1");
  const std::string other = written("other", "");
  Problems problems;
  const DataFiles files({folder_, "rte=" + other}, {"piqa", "sst", "qnli", "rte", "wic"}, problems);
  EXPECT_EQ(files.find("piqa", problems), folder_ / "piqa.jsonl.gz");
  EXPECT_EQ(files.find("sst", problems), folder_ / "sst.tsv");
  EXPECT_EQ(files.find("rte", problems), other);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(files.find("qnli", problems), "");
  EXPECT_EQ(files.find("wic", problems), "");
  ASSERT_EQ(problems.messages().size(), 2u);
  EXPECT_NE(problems.messages()[0].find("is a Parquet file"), std::string::npos);
  EXPECT_EQ(problems.messages()[1], concat("task wic: no wic.jsonl (or .tsv; .gz, .zst and .xz too) in ",
                                           folder_.string(), "; 'espalier eval --list-data' says what it holds"));
  Problems more;
  EXPECT_EQ(DataFiles({other}, {"piqa"}, more).find("piqa", more), other);
  EXPECT_TRUE(more.empty());
  const DataFiles wrong({other, "none", "x=y"}, {"piqa", "sst"}, more);
  EXPECT_EQ(
      more.messages(),
      (std::vector<std::string>{
          concat("--data ", other,
                 " is a file, but there are 2 tasks: give a folder, or name the task as TASK=", other),
          "--data none: no such file or folder", "--data x=y: no such file or folder, and x is not one of the tasks"}));
}

// The order of twenty documents under random.Random(42).shuffle (tests/data/eval/bloom-tasks.json).
TEST_F(TaskFiles, DocumentsAreAskedInTheShuffledOrder) {
  const Json order = Json::parse(read_file("tests/data/eval/bloom-tasks.json"))["aggregates"]["shuffle42_of_0..19"];
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += concat("{\"text\": \"the number ", i, "\"}\n");
  const Task& lambada = bloom_task("lambada");
  const std::string file = written("lambada.jsonl", lines);
  const PreparedTask prepared = prepare(lambada, read_documents(file, lambada.data.fields), 7);
  ASSERT_EQ(prepared.questions.size(), 7u);
  EXPECT_EQ(prepared.num_available, 20);
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(prepared.questions[i].target, concat(" ", order[i].get<int>()));
    EXPECT_EQ(prepared.documents[i].place, concat(file, ":", order[i].get<int>() + 1));
  }
}

TEST_F(TaskFiles, EveryWrongDocumentIsNamed) {
  const Task& lambada = bloom_task("lambada");
  const std::string file = written("l.jsonl", "{\"text\": \"a b\"}\n{\"txt\": \"a b\"}\n{\"text\": \"a\"}\n");
  const std::string message = refusal([&] { prepare(lambada, read_documents(file, {}), std::nullopt); });
  EXPECT_NE(message.find("task lambada: l.jsonl:2: field 'text' is missing"), std::string::npos) << message;
  EXPECT_NE(message.find("task lambada: l.jsonl:3: field 'text' has no space"), std::string::npos) << message;
  const Task& taco = bloom_task("mc_taco");
  EXPECT_EQ(refusal([&] { prepare(taco, std::vector<Document>(3), 2); }, ExitCode::kUsage),
            "task mc_taco does not accept a limit: a question's answers would be torn apart");
}

TEST_F(TaskFiles, AnswersBecomeResults) {
  const Task& lambada = bloom_task("lambada");
  std::vector<Document> documents;
  for (const char* text : {"a b", "c d", "e f"}) documents.push_back({{{"text", text}}, ""});
  const PreparedTask prepared = prepare(lambada, documents, std::nullopt);
  const TaskResult result = score(prepared, {{{-0.5, true}}, {{-2.25, false}}, {{-1.0, true}}}, 2);
  ASSERT_EQ(result.metrics.size(), 2u);
  EXPECT_EQ(result.metrics[0].name, "ppl");
  EXPECT_EQ(result.metrics[0].value, 3.4903429574618414);  // the harness's, of these three
  EXPECT_NEAR(*result.metrics[0].error, 0.8281189520166979, 1e-14);
  EXPECT_FALSE(result.metrics[0].higher_is_better);
  EXPECT_DOUBLE_EQ(result.metrics[1].value, 2.0 / 3);
  EXPECT_EQ(result.items[1][1].value, 0);
}

TEST_F(TaskFiles, OpenAisLambadaIsRead) {
  const fs::path file = test::find_data("lambada_test.jsonl");
  if (file.empty()) GTEST_SKIP() << "no lambada_test.jsonl in ../shared/data";
  const Task& lambada = bloom_task("lambada");
  const PreparedTask prepared = prepare(lambada, read_documents(file, lambada.data.fields), std::nullopt);
  EXPECT_EQ(static_cast<int64_t>(prepared.questions.size()), lambada.data.num_documents);
}

}  // namespace prepared_task_test
}  // namespace espalier::eval
