// `espalier eval` as a user meets it: requests for another engine, its answers, results.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace espalier {
namespace {

class EvalCommand : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    fs::create_directories(folder_ / "work" / "data");
    write("data/sst.tsv", "sentence\tlabel\nit 's good .\t1\nbad\t0\nfine\t1\n");
    write("data/piqa.jsonl", R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 0})"
                             "\n"
                             R"({"goal": "h", "sol1": "long one", "sol2": "c", "label": 1})"
                             "\n");
  }
  void write(const std::string& name, const std::string& content) const {
    write_file_atomically(folder_ / "work" / name, content);
  }
  std::string content(const std::string& name) const { return read_file(folder_ / "work" / name); }
  bool exists(const std::string& name) const { return fs::exists(folder_ / "work" / name); }

  // The n-th request gets log-likelihood -n, and every third is greedy.
  static constexpr const char* kAnswer =
      "awk '{sub(/}$/, \"\"); print $0 \",\\\"log_likelihood\\\":-\" NR \",\\\"is_greedy\\\":\" (NR % 3 ? \"false\" : "
      "\"true\") \"}\"}' requests.jsonl > answers.jsonl";
};

TEST_F(EvalCommand, AnotherEnginesAnswersBecomeResults) {
  const Outcome written = bash("espalier eval --tasks sst,piqa --data data --write-requests requests.jsonl");
  ASSERT_EQ(written.exit_code, 0) << written.errors;
  EXPECT_EQ(written.output, "");
  EXPECT_NE(written.errors.find("requests.jsonl: the requests of 5 documents of 2 tasks\n"), std::string::npos);
  EXPECT_NE(written.errors.find("task piqa: 'data/piqa.jsonl' has 2 documents; published numbers are of 1,838"),
            std::string::npos);
  ASSERT_EQ(bash(kAnswer).exit_code, 0);
  const Outcome scored = bash(
      "espalier eval --tasks sst,piqa --data data --read-results answers.jsonl --results-path r.json "
      "--results-csv r.csv --log-samples");
  ASSERT_EQ(scored.exit_code, 0) << scored.errors;
  // The first of the requests of a document is always likelier: positive for sst, where two of three are, and the first
  // way for piqa; by characters "c" is worse than "long one".
  const nlohmann::json results = nlohmann::json::parse(content("r.json"));
  EXPECT_DOUBLE_EQ(results["results"]["sst"]["acc"], 2.0 / 3);
  EXPECT_DOUBLE_EQ(results["results"]["piqa"]["acc"], 0.5);
  EXPECT_DOUBLE_EQ(results["results"]["piqa"]["acc_norm"], 0.5);
  EXPECT_EQ(results["task_set"], "bloom-2022");
  EXPECT_EQ(results["tokenization"], "separate");
  EXPECT_NE(content("r.csv").find("\nsst,acc,0.6666666666666666,"), std::string::npos) << content("r.csv");
  EXPECT_NE(scored.output.find("|sst |      0|acc     |"), std::string::npos) << scored.output;
  const std::string samples = content("r_samples_piqa.jsonl");
  EXPECT_EQ(std::count(samples.begin(), samples.end(), '\n'), 2);
  const Outcome json = bash(
      "espalier eval --tasks sst piqa --data data --read-results answers.jsonl --json --results-layout lm-eval-0.4");
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(json.output)["results"]["sst"]["acc,none"], 2.0 / 3) << json.errors;
}

TEST_F(EvalCommand, MegatronsTasksAreMadeOfIds) {
  const std::string tokenizer = concat(" --tokenizer-type GPT2BPETokenizer --vocab-file ", root(),
                                       "/tests/data/gpt2-tiny/vocab.json --merge-file ", root(),
                                       "/tests/data/gpt2-tiny/merges.txt --seq-length 7");
  write("wiki.txt", " = A day = \n It rained , and the end was near .\n");
  const Outcome written = bash(
      "espalier eval --task WIKITEXT103 --valid-data wiki.txt --overlapping-eval 3 --write-requests requests.jsonl" +
      tokenizer);
  ASSERT_EQ(written.exit_code, 0) << written.errors;
  const nlohmann::json first =
      nlohmann::json::parse(content("requests.jsonl").substr(0, content("requests.jsonl").find('\n')));
  EXPECT_EQ(first["rows"][0]["ids"].size(), 8u);
  EXPECT_EQ(first["rows"][0]["num_predicted"], 7);
  ASSERT_EQ(bash(kAnswer).exit_code, 0);
  const Outcome scored = bash(
      "espalier eval --task WIKITEXT103 --data wiki.txt --overlapping-eval 3 --read-results answers.jsonl" + tokenizer);
  ASSERT_EQ(scored.exit_code, 0) << scored.errors;
  EXPECT_NE(scored.output.find("\n validation results on WIKITEXT103 | avg loss: "), std::string::npos)
      << scored.output;
}

TEST_F(EvalCommand, ListsWhatTheTasksRead) {
  const Outcome one = bash("espalier eval --list-data --tasks headqa");
  EXPECT_NE(
      one.output.find("\nheadqa\n  data    head_qa es, test, 2,742 documents\n  fields  qtext, answers[].atext, ra\n"),
      std::string::npos)
      << one.output << one.errors;
  const Outcome all = bash("espalier eval --list-data --json");
  EXPECT_EQ(std::count(all.output.begin(), all.output.end(), '\n'), 28);
  const nlohmann::json first = nlohmann::json::parse(all.output.substr(0, all.output.find('\n')));
  EXPECT_EQ(first["task"], "arc_challenge");
  EXPECT_EQ(first["documents"], 1172);
  const Outcome megatron = bash("espalier eval --list-data --task-set megatron");
  EXPECT_NE(megatron.output.find("\nWIKITEXT103\n"), std::string::npos);
}

TEST_F(EvalCommand, EveryProblemIsNamedAndNothingWritten) {
  const Outcome nothing = bash("espalier eval");
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_EQ(nothing.errors,
            "error: 3 problems:\n"
            "  - --tasks is required; 'espalier eval --list-data' shows them\n"
            "  - --data is required: the folder of the tasks' files\n"
            "  - --write-requests FILE or --read-results FILE is required: what is to be done with the tasks\n");
  const Outcome wrong = bash(
      "espalier eval --tasks piqqa,wic,sst,sst --data data --write-requests r --results-csv c --log-samples "
      "--bootstrap-iters 1 --tokenizer-type GPT2BPETokenizer");
  EXPECT_EQ(wrong.exit_code, 2);
  for (const char* problem :
       {"--results-csv: there are results only with --read-results", "--log-samples needs --results-path",
        "--bootstrap-iters 1: a deviation needs two resamples; use 0 or at least 2",
        "--tasks piqqa: no task of bloom-2022; did you mean piqa?", "--tasks: sst is named twice",
        "task wic: no wic.jsonl (or .tsv; .gz, .zst and .xz too) in data",
        "--seq-length is required where requests become ids", "--vocab-file"})
    EXPECT_NE(wrong.errors.find(problem), std::string::npos) << problem << "\n" << wrong.errors;
  EXPECT_FALSE(exists("r"));
  const Outcome megatron = bash(
      "espalier eval --tasks LAMBADA --data data/piqa.jsonl --read-results x --write-requests y --limit 3 --seq-length "
      "4");
  EXPECT_EQ(megatron.exit_code, 2);
  for (const char* problem :
       {"--write-requests and --read-results: one at a time",
        "--tokenizer-type is required: megatron's tasks are made of ids", "--limit: megatron's tasks are read whole",
        "--overlapping-eval 32 is more than --seq-length 4"})
    EXPECT_NE(megatron.errors.find(problem), std::string::npos) << problem << "\n" << megatron.errors;
  EXPECT_EQ(bash("espalier eval --list-data --read-results x").exit_code, 2);
}

TEST_F(EvalCommand, WrongFilesAreNamedWithTheirLines) {
  write("data/rte.jsonl", R"({"sentence1": "a", "sentence2": "b"})");
  write("data/wic.parquet", "PAR1");
  const Outcome documents = bash("espalier eval --tasks rte,sst --data data --write-requests requests.jsonl");
  EXPECT_EQ(documents.exit_code, 65);
  EXPECT_NE(documents.errors.find("task rte: data/rte.jsonl:1: field 'label' is missing"), std::string::npos);
  EXPECT_FALSE(exists("requests.jsonl"));
  const Outcome parquet = bash("espalier eval --tasks wic --data data --write-requests requests.jsonl");
  EXPECT_EQ(parquet.exit_code, 2);
  EXPECT_NE(parquet.errors.find("'data/wic.parquet' is a Parquet file; documents are read as JSONL."),
            std::string::npos);
  write("answers.jsonl", "{}\n");
  const Outcome answers =
      bash("espalier eval --tasks sst --data data --read-results answers.jsonl --results-path r.json");
  EXPECT_EQ(answers.exit_code, 65);
  EXPECT_NE(
      answers.errors.find("answers.jsonl: lines that are no answers: 1; the first: line 1: field 'task' is missing"),
      std::string::npos)
      << answers.errors;
  EXPECT_NE(answers.errors.find("answers.jsonl: requests without an answer: 6; the first: task sst, doc_id 0, index 0"),
            std::string::npos);
  EXPECT_FALSE(exists("r.json"));
}

}  // namespace
}  // namespace espalier
