// A retriever as a user meets it: trained on text from a BERT, passages indexed, questions searched and evaluated, and
// finetuned; by Megatron's command lines too.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "store/safetensors.h"
#include "tests/support/command.h"

namespace espalier {
namespace ict_command_test {

using Json = nlohmann::json;

// 60 documents, each about a word of its own, which its title and all of its sentences have.
constexpr const char* kMakeTexts = R"(awk 'BEGIN {
  srand(3); n = split("and arger aus brown adwjj ajvse apje don mask the der die das", words, " ")
  for (d = 0; d < 60; ++d) {
    topic = sprintf("%c%c", 97 + d % 26, 97 + int(d / 26)); text = ""
    for (sentence = 0; sentence < 6; ++sentence) {
      line = topic
      for (w = 0; w < 3; ++w) line = line " " words[int(rand() * n) + 1]
      text = text toupper(substr(line, 1, 1)) substr(line, 2) " " topic ". "
    }
    printf "{\"text\": \"%s\", \"title\": \"%s\"}\n", text, topic > "texts.jsonl"
  }
}')";

// 1,000 passages, every 40th of which has the answer of one of 40 questions; DPR's questions with passages.
constexpr const char* kMakeEvidence = R"(awk 'BEGIN {
  srand(4); n = split("and arger aus adwjj ajvse apje don mask the der die das", words, " ")
  print "id\ttext\ttitle" > "evidence.tsv"
  for (p = 0; p < 1000; ++p) {
    text = ""
    for (w = 0; w < 6; ++w) text = text " " words[int(rand() * n) + 1]
    text = text " Brown, " p % 40 " die"
    printf "%d\t\"%s, \"\"said\"\" %c\"\t%c%c\n", p, text, 97 + p % 26, 97 + p % 26, 97 + p % 7 > "evidence.tsv"
  }
  for (q = 0; q < 40; ++q) {
    question = words[int(rand() * n) + 1] " " words[int(rand() * n) + 1]
    printf "%s\t[%cnothing of it%c, %cbrown , %d%c]\n", question, 39, 39, 34, q, 34 > "questions.tsv"
    printf "%s\n", question > "questions.txt"
  }
  printf "[" > "train.json"
  for (q = 0; q < 48; ++q) {
    topic = sprintf("%c%c", 97 + q % 24, 97 + q / 24)
    printf "%s{\"question\": \"%s who?\", \"answers\": [\"x\"], \"positive_ctxs\": [{\"title\": \"%s\", \"text\": \"and %s\"}],", q ? "," : "", topic, topic, topic > "train.json"
    printf "\"hard_negative_ctxs\": [{\"title\": \"%c\", \"text\": \"die\"}], \"negative_ctxs\": [{\"title\": \"b\", \"text\": \"das\"}]}", 97 + q % 5 > "train.json"
  }
  print "]" > "train.json"
}')";

class IctCommand : public Command {
 protected:
  std::string vocabulary() const {
    return concat(" --vocab-file ", root(), "/tests/data/megatron_tokenizers/bert_lower/vocab.txt ");
  }
  std::string model() const {
    return concat(
        vocabulary(),
        "--num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 40 "
        "--hidden-dropout 0 --attention-dropout 0 --init-method-std 0.1 ");
  }
  // Texts and token files of them, evidence and questions.
  void SetUp() override {
    Command::SetUp();
    const Outcome made = made_once(concat(kMakeEvidence, "; ", prepare()));
    ASSERT_EQ(made.exit_code, 0) << made.errors;
  }
  std::string prepare() const {
    std::string commands = "set -e; ";
    for (const char* key : {"text", "title"})
      commands += concat("espalier preprocess --input texts.jsonl --json-keys ", key, " --output-prefix data ",
                         "--tokenizer-type BertWordPieceLowerCase", vocabulary(),
                         std::string(key) == "text" ? "--split-sentences" : "", " 2>/dev/null; ");
    return concat(kMakeTexts, "; ", commands);
  }
  std::string train_ict(const std::string& more) const {
    return concat(
        "espalier train ict", model(),
        "--data-path data_text_sentence --titles-data-path data_title_document --split 100,0,0 --eval-iters 0 "
        "--micro-batch-size 16 --train-iters 40 --lr 3e-3 --num-threads 1 --log-interval 10 "
        "--lr-decay-style constant --save-interval 1000 ",
        more, "; ");
  }
  std::vector<double> numbers_of(const std::string& file, const char* key) const {
    std::vector<double> numbers;
    std::istringstream lines(read_file(folder_ / "work" / file));
    for (std::string line; std::getline(lines, line);)
      if (const Json json = Json::parse(line); json.contains(key) && json.contains("sample_hash"))
        numbers.push_back(json.at(key).get<double>());
    return numbers;
  }
};

TEST_F(IctCommand, LearnsToFindTheBlocksOfTexts) {
  const Outcome outcome = bash(concat(
      "set -e; espalier train bert", model(),
      "--data-path data_text_sentence --split 100,0,0 --eval-iters 0 "
      "--micro-batch-size 8 --train-iters 4 --lr 1e-3 --num-threads 1 --save bert --save-interval 4 2>/dev/null; ",
      train_ict("--bert-load bert --retriever-report-topk-accuracies 1 5 --retriever-score-scaling --save run 2>log"),
      "grep -c 'loaded pretrained weights' log; grep -c 'top5_acc: ' log"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors << read_file(folder_ / "work/log");
  EXPECT_EQ(outcome.output, "1\n4\n");
  const std::vector<double> losses = numbers_of("run/metrics.jsonl", "loss"),
                            first = numbers_of("run/metrics.jsonl", "top1_acc");
  ASSERT_EQ(losses.size(), 40u);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
  EXPECT_GT(first.back(), 50);
}

// An index of planted passages: the figures are those of a plain computation from the vectors in it.
TEST_F(IctCommand, EmbedsSearchesAndEvaluatesByMegatronsLines) {
  const std::string megatron = concat(
      " --tokenizer-type BertWordPieceLowerCase --num-layers 1 --hidden-size 32 --num-attention-heads 2 "
      "--tensor-model-parallel-size 1 --micro-batch-size 128 --activations-checkpoint-method uniform --seq-length 32 "
      "--max-position-embeddings 40 --load run --evidence-data-path evidence.tsv --retriever-seq-length 24",
      vocabulary(), "--fp16 --indexer-log-interval 2 --indexer-batch-size 200 ");
  const Outcome outcome = bash(concat(
      "set -e; ", train_ict("--train-iters 1 --biencoder-projection-dim 7 --save run 2>/dev/null"),
      "espalier index embed --load run --evidence-data-path evidence.tsv --embedding-path one --workers 1 "
      "--retriever-seq-length 24 --shard-rows 300 2>/dev/null; "
      "espalier launch --nproc-per-node 2 tools/create_doc_index.py",
      megatron,
      "--embedding-path two --workers 2 --shard-rows 300 2>log; "
      "grep -o 'Batch .*' log; cmp one/index.json two/index.json && cat one/shard-*|cksum >a; cat "
      "two/shard-*|cksum|cmp - a; "
      "espalier index search one --load run --questions questions.txt --retriever-seq-length 24 --top-k 20 --json "
      ">found; "
      "espalier tasks/main.py --task RETRIEVER-EVAL",
      megatron,
      "--embedding-path one --qa-data-test questions.tsv --faiss-use-gpu --retriever-report-topk-accuracies 1 5 20 "
      "--faiss-topk-retrievals 20 2>/dev/null"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors;
  EXPECT_TRUE(outcome.output.starts_with("Batch          2 | Total        300\nBatch          4 | Total        600\n"))
      << outcome.output;
  // A plain count: passages 40 n + q answer question q.
  std::vector<int> hits(20);
  std::istringstream lines(read_file(folder_ / "work/found"));
  int question = 0;
  for (std::string line; std::getline(lines, line); ++question) {
    const auto ids = Json::parse(line).at("ids").get<std::vector<int64_t>>();
    ASSERT_EQ(ids.size(), 20u);
    const auto answers = [&](int64_t id) { return id % 40 == question; };
    const auto at = static_cast<size_t>(std::find_if(ids.begin(), ids.end(), answers) - ids.begin());
    for (size_t place = at; place < 20; ++place) ++hits[place];
  }
  EXPECT_EQ(question, 40);
  EXPECT_GT(hits[19], hits[0]);
  std::string wanted = "TEST SET RESULTS\ntopk-20 documents hits [";
  for (size_t place = 0; place < 20; ++place) wanted += concat(place == 0 ? "" : ", ", hits[place]);
  EXPECT_NE(outcome.output.find(wanted + "]\n"), std::string::npos) << wanted << "\n" << outcome.output;
  for (const int k : {1, 5, 20}) {
    char text[40];
    std::snprintf(text, sizeof text, "top-%d: %.2f\n", k, 100.0 * hits[static_cast<size_t>(k) - 1] / 40);
    EXPECT_NE(outcome.output.find(text), std::string::npos) << text << outcome.output;
  }
}

TEST_F(IctCommand, AnEmbeddingThatWasKilledGoesOnToTheSameBytes) {
  const std::string embed =
      "espalier index embed --load run --evidence-data-path evidence.tsv --retriever-seq-length 24 "
      "--workers 1 --shard-rows 20 --embedding-path ";
  const Outcome outcome = bash(concat(
      "set -e; ", train_ict("--train-iters 1 --save run 2>/dev/null"), embed,
      "killed 2>/dev/null & pid=$!; until [ -e killed/shard-00001.safetensors ]; do sleep 0.01; done; kill -9 $pid; "
      "wait $pid || true; ls killed/index.json || echo unfinished; ",
      embed, "killed 2>&1 | grep -c 'of which existed'; ", embed,
      "whole 2>/dev/null; cat whole/shard-* | cksum >sum; cat killed/shard-* | cksum | cmp - sum; cmp "
      "killed/index.json "
      "whole/index.json && echo same"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors;
  EXPECT_EQ(outcome.output, "unfinished\n1\nsame\n") << outcome.errors;
}

TEST_F(IctCommand, IsFinetunedOnQuestionsByMegatronsScript) {
  const Outcome outcome = bash(
      concat("set -e; ", train_ict("--train-iters 1 --biencoder-shared-query-context-model --save run 2>/dev/null"),
             "espalier tasks/main.py --task RET-FINETUNE-NQ", model(),
             "--biencoder-shared-query-context-model --train-data train.json --valid-data train.json --train-with-neg "
             "--train-hard-neg 1 --pretrained-checkpoint run "
             "--retriever-seq-length 16 --retriever-report-topk-accuracies 1 5 --retriever-score-scaling --epochs 3 "
             "--micro-batch-size 16 --eval-micro-batch-size 16 --lr 3e-3 --num-threads 1 --save nq 2>log; ",
             "grep -c 'loaded pretrained weights' log; grep -o 'epoch:3|train|rank = [0-9.]*|top1_acc = [0-9.]*' log"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors << read_file(folder_ / "work/log");
  double rank = -1, first = -1;
  ASSERT_EQ(std::sscanf(outcome.output.c_str(), "1\nepoch:3|train|rank = %lf|top1_acc = %lf", &rank, &first), 2)
      << outcome.output;
  EXPECT_GT(first, 80) << outcome.output;
  EXPECT_LT(rank, 1) << outcome.output;
}

// The weights, the optimizer's state and the position of a run, written as upstream writes its biencoders and read
// again.
TEST_F(IctCommand, GoesToMegatronAndBackToTheSameBits) {
  std::string commands = "set -e; ";
  for (const char* more : {"--biencoder-projection-dim 7", "--biencoder-shared-query-context-model"})
    commands += concat(
        train_ict(concat("--train-iters 2 --save run ", more, " 2>/dev/null")),
        "espalier checkpoint export-megatron --load run --output out; "
        "espalier checkpoint import-megatron --input out --save back | grep -o 'ict, step 2'; "
        "espalier checkpoint diff run back | grep -o 'bitwise equal'; rm -r run out; rm -rf first; mv back first; ");
  commands += concat("mv first/step_* . && rm -r first; espalier train ict-task", model(),
                     "--biencoder-shared-query-context-model --train-data train.json --valid-data train.json "
                     "--pretrained-checkpoint step_00000002 --retriever-seq-length 16 --epochs 1 --micro-batch-size 16 "
                     "--lr 1e-3 --num-threads 1 --save nq 2>/dev/null; "
                     "espalier checkpoint export-megatron --load nq --output out --no-save-optim >/dev/null; "
                     "espalier checkpoint import-megatron --input out --save nq-back | grep -o 'ict, step 3'; "
                     "espalier checkpoint export-megatron --load nq --output two --tensor-model-parallel-size 2");
  const Outcome outcome = bash(commands);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.errors.find("on one tensor rank and one stage: use 1"), std::string::npos) << outcome.errors;
  std::string found;
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("ict") || line.starts_with("bitwise")) found += line + ";";
  EXPECT_EQ(found, "ict, step 2;bitwise equal;ict, step 2;bitwise equal;ict, step 3;")
      << outcome.output << outcome.errors;
}

TEST_F(IctCommand, WhatCannotBeIsRefusedBeforeAnythingRuns) {
  const std::string run = concat("espalier train ict", model(), "--train-iters 1 --lr 1e-3 --save run ");
  const Outcome outcome = bash(concat(
      "set +e; ", run, "--micro-batch-size 1 --data-path data_text_sentence; echo $?; ", run,
      "--micro-batch-size 4 --pipeline-model-parallel-size 2 --data-path data_text_sentence --titles-data-path "
      "data_title_document --bert-load none; echo $?; "
      "espalier index embed --evidence-data-path evidence.tsv --embedding-path x; echo $?; "
      "espalier index search x --question why; echo $?; "
      "espalier train bert",
      model(),
      "--data-path data_text_sentence --split 100,0,0 --eval-iters 0 --micro-batch-size 8 "
      "--train-iters 1 --lr 1e-3 --num-threads 1 --save bert --save-interval 1 2>/dev/null; "
      "espalier index embed --load bert --evidence-data-path evidence.tsv --embedding-path x; echo $?; "
      "tail -n +2 evidence.tsv >headless.tsv; ",
      train_ict("--train-iters 1 --save run 2>/dev/null"),
      "espalier index embed --load run --evidence-data-path headless.tsv --embedding-path x --retriever-seq-length 24; "
      "echo $?; "
      "espalier index embed --load run --evidence-data-path evidence.tsv --embedding-path x --retriever-seq-length "
      "256; "
      "echo $?; "
      "printf 'who\\t__import__(\"os\").system(\"touch hacked\")\\n' >bad.tsv; "
      "espalier index evaluate --load run --evidence-data-path evidence.tsv --embedding-path y --qa-data-dev bad.tsv "
      "--retriever-seq-length 24; echo $?; ls hacked"));
  EXPECT_EQ(outcome.output, "2\n2\n2\n2\n2\n65\n2\n65\n") << outcome.errors;
  for (const char* problem :
       {"--micro-batch-size 1 (command line): a query is compared with the contexts of one micro-batch",
        "--titles-data-path is missing", "an ICT has no pipeline stages; use 1, and tensor or data parallelism",
        "--bert-load none holds no checkpoint", "--load is required: the run folder of espalier train ict",
        "which makes no vectors of texts: give a run of espalier train ict",
        "expected a header such as 'id\ttext\ttitle', found a passage",
        "--retriever-seq-length 256 is more than the 40 positions",
        "bad.tsv', line 1: the answers are not a list of strings"})
    EXPECT_NE(outcome.errors.find(problem), std::string::npos) << problem << "\n" << outcome.errors;
}

}  // namespace ict_command_test
}  // namespace espalier
