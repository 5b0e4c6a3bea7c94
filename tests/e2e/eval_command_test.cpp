// `espalier eval` as a user meets it: requests for another engine, its answers, results.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

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

TEST_F(EvalCommand, FilesOfOthersAreNotReplaced) {
  ASSERT_EQ(bash("espalier eval --tasks sst,piqa --data data --write-requests requests.jsonl").exit_code, 0);
  ASSERT_EQ(bash(kAnswer).exit_code, 0);
  const std::string score = "espalier eval --tasks sst --data data --read-results sst.jsonl --log-samples ";
  ASSERT_EQ(bash("grep '\"sst\"' answers.jsonl >sst.jsonl").exit_code, 0);
  // The harness's own results begin as ours.
  write("harness.json", "{\n  \"results\": {\n    \"sst\": {\"acc,none\": 0.5}\n  },\n  \"git_hash\": \"abc\"\n}\n");
  write("mine_samples_sst.jsonl", "notes\n");
  write("table.csv", "a,b\n1,2\n");
  const Outcome refused = bash(score + "--results-path harness.json --results-csv table.csv");
  EXPECT_EQ(refused.exit_code, 2);
  for (const char* part :
       {"--results-path: 'harness.json' exists and is not results of espalier eval",
        "--results-csv: 'table.csv' exists and is not a table of results", "--overwrite replaces it"})
    EXPECT_NE(refused.errors.find(part), std::string::npos) << part << " in\n" << refused.errors;
  EXPECT_EQ(bash(score + "--results-path mine.json").exit_code, 2);
  EXPECT_EQ(content("mine_samples_sst.jsonl"), "notes\n");
  EXPECT_EQ(content("table.csv"), "a,b\n1,2\n");
  EXPECT_FALSE(exists("mine.json"));
  EXPECT_EQ(bash("espalier eval --tasks sst --data data --write-requests data/sst.tsv").exit_code, 2);
  ASSERT_EQ(bash(score + "--results-path harness.json --results-csv table.csv --overwrite").exit_code, 0);
  const Outcome again = bash(score + "--results-path harness.json --results-csv table.csv");  // they are ours now
  EXPECT_EQ(again.exit_code, 0) << again.errors;
}

// A run of one step.
class EvalOfARun : public EvalCommand {
 protected:
  void SetUp() override {
    EvalCommand::SetUp();
    const std::string tiny = root() + "/tests/data/gpt2-tiny/",
                      tokenizer = " --vocab-file " + tiny + "vocab.json --merge-file " + tiny + "merges.txt ";
    const Outcome outcome = made_once(concat(
        "set -e; espalier preprocess --tokenizer-type GPT2BPETokenizer --append-eod --output-prefix owt --input ",
        root(), "/tests/data/owt-20.jsonl", tokenizer, "; espalier train gpt --num-layers 2 --hidden-size 32 ",
        "--num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size "
        "2 ",
        "--lr 1e-3 --train-iters 1 --split 100,0,0 --eval-iters 0 --num-threads 1 --save run --save-interval 1 ",
        "--data-path owt_text_document", tokenizer));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  }
};

// The log-likelihood of what was generated is the sum of the log-probabilities that generation reported.
TEST_F(EvalOfARun, RequestsAreScoredAsGenerationScores) {
  const nlohmann::json generated = nlohmann::json::parse(
      bash("espalier generate --load run --prompt 'The president' --greedy --tokens-to-generate 9 --json").output);
  double expected = 0;
  for (const double logprob : generated.at("logprobs")) expected += logprob;
  const nlohmann::json request = {{"context", "The president"}, {"continuation", generated.at("text")}};
  write("requests.jsonl", concat(request.dump(), "\n{\"context\": \"\", \"continuation\": \"Hello\"}\n"));
  const Outcome one = bash("espalier eval --load run --requests requests.jsonl --num-threads 1"),
                two = bash("tac requests.jsonl >turned.jsonl; espalier eval --load run --requests turned.jsonl | tac");
  ASSERT_EQ(one.exit_code, 0) << one.errors;
  EXPECT_EQ(one.output, two.output);
  const nlohmann::json first = nlohmann::json::parse(one.output.substr(0, one.output.find('\n')));
  EXPECT_EQ(first.at("tokens"), 9) << generated;
  EXPECT_EQ(first.at("is_greedy"), true);
  EXPECT_NEAR(first.at("loglikelihood").get<double>(), expected, 1e-12 * std::abs(expected));
  write("bad.jsonl", "{\"context\": \"a\"}\n");
  const Outcome bad = bash("espalier eval --load run --requests bad.jsonl");
  EXPECT_EQ(bad.exit_code, 65);
  EXPECT_NE(bad.errors.find("bad.jsonl:1: expected {\"context\": \"...\", \"continuation\": \"...\"}"),
            std::string::npos)
      << bad.errors;
}

// The answers of the tasks are those that the same requests get by themselves.
TEST_F(EvalOfARun, TasksAreAskedOfTheModel) {
  write("lambada.jsonl", "{\"text\": \"The president of the United States\"}\n{\"text\": \"A b c\"}\n");
  const Outcome outcome = bash(
      "set -e; espalier eval --load run --tasks sst,piqa --data data --results-path r.json 2>/dev/null >/dev/null; "
      "espalier eval --load run --tasks LAMBADA --data lambada.jsonl");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("validation results on LAMBADA | number correct: "), std::string::npos)
      << outcome.output;
  // PIQA's own form of a question.
  write("piqa.jsonl",
        "{\"context\": \"Question: g\\nAnswer:\", \"continuation\": \" a\"}\n"
        "{\"context\": \"Question: g\\nAnswer:\", \"continuation\": \" b\"}\n"
        "{\"context\": \"Question: h\\nAnswer:\", \"continuation\": \" long one\"}\n"
        "{\"context\": \"Question: h\\nAnswer:\", \"continuation\": \" c\"}\n");
  std::istringstream lines(bash("espalier eval --load run --requests piqa.jsonl").output);
  std::vector<double> scores;
  for (std::string line; std::getline(lines, line);) scores.push_back(nlohmann::json::parse(line).at("loglikelihood"));
  ASSERT_EQ(scores.size(), 4u);
  const int right = (scores[0] >= scores[1] ? 1 : 0) + (scores[3] > scores[2] ? 1 : 0);  // the answers: 0 and 1
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(content("r.json")).at("results").at("piqa").at("acc"), right / 2.0);
}

// Layers that are read one after another give the bits of a model that is in memory; a damaged one is named.
TEST_F(EvalOfARun, LayersThatAreReadWhenTheyAreNeededGiveTheSameBits) {
  write("requests.jsonl",
        "{\"context\": \"The president\", \"continuation\": \" of the United States\"}\n"
        "{\"context\": \"\", \"continuation\": \"Hello\"}\n");
  const std::string generate =
                        "espalier generate --load run --prompt 'The president' 'A' --tokens-to-generate 9 --json ",
                    eval = "espalier eval --load run --requests requests.jsonl ";
  const Outcome generated = bash(generate + "--stream-layers"), scored = bash(eval + "--stream-layers");
  ASSERT_EQ(generated.exit_code, 0) << generated.errors;
  ASSERT_EQ(scored.exit_code, 0) << scored.errors;
  EXPECT_NE(generated.output, "");
  EXPECT_EQ(generated.output, bash(generate).output);
  EXPECT_EQ(scored.output, bash(eval).output);
  EXPECT_NE(generated.errors.find("the layers are read when they are needed: "), std::string::npos) << generated.errors;
  const Outcome both = bash(generate + "--stream-layers --int8-weights");
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_NE(both.errors.find("--int8-weights and --stream-layers: one at a time"), std::string::npos);
  const Outcome damaged = bash(
      "f=$(ls run/step_*/weights-00001.safetensors); n=$(stat -c %s $f); chmod u+w $f; "
      "printf x | dd of=$f bs=1 seek=$((n - 9)) conv=notrunc 2>dd.log; " +
      generate + "--stream-layers");
  EXPECT_EQ(damaged.exit_code, 65) << damaged.errors;
  EXPECT_NE(damaged.errors.find("weights-00001.safetensors"), std::string::npos) << damaged.errors;
}

// A task whose answers are texts: they are what generation says, up to the first stop.
TEST_F(EvalOfARun, TextsAreGeneratedForTasks) {
  write("sums.yaml", R"(task: sums
test_split: test
output_type: generate_until
doc_to_text: "{{q}}"
doc_to_target: "{{a}}"
generation_kwargs: {until: ["e"]}
filter_list:
  - {name: strict, filter: [{function: regex, regex_pattern: '^(.)'}, {function: take_first}]}
  - {name: as-it-is, filter: [{function: take_first}]}
)");
  const std::string ask =
      "espalier eval --load run --tasks sums --task-files sums.yaml --data data --output r.json --log-samples ";
  const nlohmann::json generated = nlohmann::json::parse(
      bash("espalier generate --load run --prompt 'The president' --greedy --tokens-to-generate 9 --json").output);
  const std::string all = generated.at("text"), expected = all.substr(0, all.find('e'));
  write("data/sums.jsonl", concat(nlohmann::json{{"q", "The president"}, {"a", expected}}.dump(), "\n",
                                  nlohmann::json{{"q", "Of"}, {"a", "\u0001"}}.dump(), "\n"));
  const Outcome outcome = bash(ask + "--max-gen-toks 9");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(nlohmann::json::parse(content("r.json")).at("results").at("sums").at("exact_match,as-it-is"), 0.5);
  std::istringstream lines(content("r_samples_sums.jsonl"));
  std::vector<nlohmann::json> samples;
  for (std::string line; std::getline(lines, line);) samples.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(samples.size(), 4u);  // two documents by two filters
  EXPECT_EQ(samples[2].at("filter"), "as-it-is");
  EXPECT_EQ(samples[2].at("resps"), nlohmann::json::parse(concat("[[", nlohmann::json(expected).dump(), "]]")));
  EXPECT_EQ(samples[0].at("arguments").at("gen_args_0").at("arg_1").at("max_gen_toks"), 9);
  // Another engine's texts may have more than what counts.
  const std::string answers = concat(
      "espalier eval --tasks sums --task-files sums.yaml --data data --write-requests asked.jsonl --max-gen-toks 9; "
      "awk '{sub(/}$/, \"\"); print $0 \",\\\"text\\\":\\\"\\\\u0001e and more\\\"}\"}' asked.jsonl >said.jsonl; "
      "espalier eval --tasks sums --task-files sums.yaml --data data --read-results said.jsonl --json");
  const Outcome others = bash(answers);
  ASSERT_EQ(others.exit_code, 0) << others.errors << content("said.jsonl");
  EXPECT_EQ(nlohmann::json::parse(others.output).at("results").at("sums").at("exact_match,strict"), 0.5);
  const Outcome too_long = bash(ask);
  EXPECT_EQ(too_long.exit_code, 2);
  EXPECT_NE(too_long.errors.find("max_gen_toks 256 leaves no room for a prompt in a sequence of 64 ids; "
                                 "--max-gen-toks N asks for shorter texts"),
            std::string::npos)
      << too_long.errors;
  EXPECT_NE(bash("espalier eval --load run --tasks sst --data data --max-gen-toks 4")
                .errors.find("--max-gen-toks: none of the tasks generates text"),
            std::string::npos);
}

// Tasks of several sets at once have the numbers that each has alone.
TEST_F(EvalOfARun, TasksOfSeveralSetsAreAskedAtOnce) {
  write("data/lambada.jsonl", "{\"text\": \"The president of the United States\"}\n{\"text\": \"A b c\"}\n");
  write("data/wiki.test.tokens", " = A day = \n It rained , and the end was near .\n");
  const Outcome mixed = bash(
      "espalier eval --load run --tasks bloom-2022:lambada,sst,wikitext103,lambada-strict --data data --output "
      "all.json");
  ASSERT_EQ(mixed.exit_code, 0) << mixed.errors;
  const Outcome apart = bash(
      "set -e; espalier eval --load run --tasks lambada sst --data data --output bloom.json; "
      "espalier eval --load run --tasks WIKITEXT103 --data data/wiki.test.tokens --output wiki.json; "
      "espalier eval --load run --tasks LAMBADA --strict-lambada --data data --output strict.json");
  ASSERT_EQ(apart.exit_code, 0) << apart.errors;
  const auto results = [&](const char* file) { return nlohmann::json::parse(content(file)).at("results"); };
  const nlohmann::json all = nlohmann::json::parse(content("all.json"));
  EXPECT_EQ(all.at("results").at("lambada"), results("bloom.json").at("lambada"));
  EXPECT_EQ(all.at("results").at("sst"), results("bloom.json").at("sst"));
  EXPECT_EQ(all.at("results").at("wikitext103"), results("wiki.json").at("WIKITEXT103"));
  EXPECT_EQ(all.at("results").at("lambada-strict"), results("strict.json").at("LAMBADA"));
  EXPECT_EQ(all.at("task_set"), (nlohmann::json{{"lambada", "bloom-2022"},
                                                {"sst", "bloom-2022"},
                                                {"wikitext103", "megatron"},
                                                {"lambada-strict", "megatron"}}));
  for (const char* line : {"validation results on WIKITEXT103", "validation results on LAMBADA", "|lambada|"})
    EXPECT_NE(mixed.output.find(line), std::string::npos) << line << "\n" << mixed.output;
  // One name of two sets.
  const Outcome twins = bash(
      "espalier eval --load run --tasks bloom-2022:lambada,megatron:LAMBADA,megatron:lambada-strict --data data "
      "--json");
  EXPECT_EQ(twins.exit_code, 0) << twins.errors;
  const Outcome wrong = bash("espalier eval --load run --tasks bloom:lambada,sst:x,bloom-2022:wikitext103 --data data");
  EXPECT_EQ(wrong.exit_code, 2);
  for (const char* problem :
       {"--tasks bloom:lambada: there is no set 'bloom', only bloom-2022, megatron and lm-eval-0.4",
        "there is no set 'sst'", "--tasks wikitext103: no task of bloom-2022"})
    EXPECT_NE(wrong.errors.find(problem), std::string::npos) << problem << "\n" << wrong.errors;
}

// --eval-tasks: the figures of `eval` on the checkpoint, and a training that is not changed by it.
TEST_F(EvalOfARun, TheTasksOfARunAreAskedBesideIt) {
  const std::string
      tiny = root() + "/tests/data/gpt2-tiny/",
      train = concat(
          "espalier train gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 64 "
          "--max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 2 --lr 1e-3 --train-iters "
          "6 --split 100,0,0 --eval-iters 0 --num-threads 1 --save-interval 3 --data-path "
          "owt_text_document --vocab-file ",
          tiny, "vocab.json --merge-file ", tiny, "merges.txt ");
  const Outcome asked = bash(train + "--save asked --eval-tasks sst,piqa --eval-tasks-data data");
  ASSERT_EQ(asked.exit_code, 0) << asked.errors;
  ASSERT_EQ(bash(train + "--save plain").exit_code, 0);
  const Outcome same = bash("espalier checkpoint diff asked/step_00000006 plain/step_00000006");
  EXPECT_EQ(same.exit_code, 0) << same.output << same.errors;
  ASSERT_EQ(bash("espalier eval --load plain --tasks sst piqa --data data --output plain.json").exit_code, 0);
  const nlohmann::json expected = nlohmann::json::parse(content("plain.json")).at("results");
  nlohmann::json found;  // of the last step
  std::istringstream lines(content("asked/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const auto record = nlohmann::json::parse(line); record.contains("tasks") && record.at("step") == 6)
      found = record.at("tasks");
  EXPECT_EQ(found, expected) << asked.errors;
  EXPECT_NE(asked.errors.find("tasks at iteration 6 | sst acc: "), std::string::npos) << asked.errors;
  EXPECT_TRUE(exists("asked/evaluations/step_00000006.json"));
  const Outcome wrong = bash(train + "--eval-tasks sst,wic,none --eval-tasks-data data");
  EXPECT_EQ(wrong.exit_code, 2);
  for (const char* problem :
       {"--eval-tasks evaluates saved checkpoints: give --save", "--tasks none: no task of", "task wic: no wic.jsonl"})
    EXPECT_NE(wrong.errors.find(problem), std::string::npos) << problem << "\n" << wrong.errors;
  const Outcome broken = bash("echo '{' >data/rte.jsonl; " + train +
                              "--save broken --eval-tasks rte --eval-tasks-data data; "
                              "grep '\"evaluation failed\"' broken/events.jsonl");
  EXPECT_EQ(broken.exit_code, 0) << broken.errors;
  EXPECT_NE(broken.errors.find("the tasks of --eval-tasks at step 6 have no figures: espalier eval ended with code 65"),
            std::string::npos)
      << broken.errors;
}

TEST_F(EvalOfARun, WhatAModelCannotBeAskedIsRefused) {
  const Outcome outcome = bash(
      "espalier eval --load run --tasks sst --data data --read-results x; espalier eval --load none --requests x; "
      "espalier eval --requests x; espalier eval --load run --tasks sst --data data --seq-length 65; "
      "printf '{\"context\": \"a\", \"continuation\": \" b\"}\\n{\"context\": \"a\", \"continuation\": \"\"}\\n' "
      ">two.jsonl; "
      "espalier eval --load run --requests two.jsonl; espalier eval --load run --requests two.jsonl --output x.json; "
      "espalier eval --load run --tasks sst --data data --int8-shift; "
      "espalier eval --load run --tasks sst --data data --tokenizer-type GPT2BPETokenizer");
  EXPECT_EQ(outcome.exit_code, 2);
  for (const char* problem :
       {"--load, --write-requests and --read-results: one at a time", "'none' holds no complete checkpoint",
        "--requests needs --load: the model that scores them", "the model of --load has its own tokenizer",
        "--seq-length 65 is longer than that of the model's training, 64", "two.jsonl:2: the continuation '' has 0 ids",
        "--requests prints its answers on the standard output", "--int8-shift says what 8 bits change"})
    EXPECT_NE(outcome.errors.find(problem), std::string::npos) << problem << "\n" << outcome.errors;
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
            "  - --load DIR is required: the model to evaluate; or, for another engine, --write-requests FILE and then "
            "--read-results FILE\n");
  const Outcome wrong = bash(
      "espalier eval --tasks piqqa,wic,sst,sst --data data --write-requests r --results-csv c --log-samples "
      "--bootstrap-iters 1 --tokenizer-type GPT2BPETokenizer");
  EXPECT_EQ(wrong.exit_code, 2);
  for (const char* problem :
       {"--results-csv: there are results only with --load or --read-results", "--log-samples needs --results-path",
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
       {"--load, --write-requests and --read-results: one at a time",
        "--tokenizer-type is required: megatron's tasks consist of ids",
        "--limit: megatron's tasks are read completely", "--overlapping-eval 32 is more than --seq-length 4"})
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
  // Where what reads Parquet was built, the file is looked into.
  const bool reads = fs::exists(fs::path(ESPALIER_PROGRAM).parent_path() / "libespalier_parquet.so");
  EXPECT_EQ(parquet.exit_code, reads ? 65 : 2) << parquet.errors;
  EXPECT_NE(parquet.errors.find(reads ? "'data/wic.parquet': cut off or damaged, as its end does not"
                                      : "'data/wic.parquet' is a Parquet file, which is read once"),
            std::string::npos)
      << parquet.errors;
  write("answers.jsonl", "{}\n");
  const Outcome answers =
      bash("espalier eval --tasks sst --data data --read-results answers.jsonl --results-path r.json");
  EXPECT_EQ(answers.exit_code, 65);
  EXPECT_NE(
      answers.errors.find("answers.jsonl: lines that are not answers: 1; the first: line 1: field 'task' is missing"),
      std::string::npos)
      << answers.errors;
  EXPECT_NE(answers.errors.find("answers.jsonl: requests without an answer: 6; the first: task sst, doc_id 0, index 0"),
            std::string::npos);
  EXPECT_FALSE(exists("r.json"));
}

}  // namespace
}  // namespace espalier
