// `espalier train bert-task` as a user meets it: a rule that can be learned, metrics and predictions, Megatron's
// script.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace espalier {
namespace finetuning_command_test {

// One word of the second text decides.
class FinetuningCommand : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    const Outcome made = bash(R"(mkdir -p RACE/train RACE/dev; awk 'BEGIN {
      srand(7); split("and arger aus brown adwjj ajvse apje", words, " "); split("don mask the", marks, " ")
      split("contradiction entailment neutral", labels, " ")
      for (file = 1; file <= 2; ++file) {
        name = file == 1 ? "train.tsv" : "dev.tsv"
        for (i = 1; i <= 12; ++i) printf "c%d%s", i, i < 12 ? "\t" : "\n" > name
        for (row = 0; row < (file == 1 ? 480 : 33); ++row) {
          label = int(rand() * 3) + 1; a = words[int(rand() * 7) + 1]; b = marks[label] " " words[int(rand() * 7) + 1]
          printf "%d\tx\tx\tx\tx\tx\tx\tx\t%s\t%s\ty\t%s\n", row + 100, a, b, labels[label] > name
        }
      }
      for (i = 1; i <= 10; ++i) printf "c%d%s", i, i < 10 ? "\t" : "\n" > "test.tsv"
      for (row = 0; row < 7; ++row) printf "%d\tx\tx\tx\tx\tx\tx\tx\tand\tthe aus\n", row > "test.tsv"
      for (file = 0; file < 44; ++file) {
        name = file < 40 ? "RACE/train/" file ".txt" : "RACE/dev/" file ".txt"
        questions = ""; options = ""; answers = ""
        for (q = 0; q < 4; ++q) {
          right = int(rand() * 4); one = ""
          for (o = 0; o < 4; ++o)
            one = one (o ? ", " : "") "\"" (o == right ? "don " : "") words[int(rand() * 7) + 1] "\""
          questions = questions (q ? ", " : "") "\"where is _ ?\""; options = options (q ? ", " : "") "[" one "]"
          answers = answers (q ? ", " : "") "\"" substr("ABCD", right + 1, 1) "\""
        }
        printf "{\"article\": \"and aus\", \"questions\": [%s], \"options\": [%s], \"answers\": [%s], \"id\": \"x\"}\n", questions, options, answers > name
      }
    }')");
    ASSERT_EQ(made.exit_code, 0) << made.errors;
  }

  std::string model() const {
    return concat(
        " --num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 "
        "--hidden-dropout 0 --attention-dropout 0 --num-threads 1 --vocab-file ",
        root(), "/tests/data/megatron_tokenizers/bert_lower/vocab.txt ");
  }
  std::string train(const std::string& more) const {
    return concat("espalier train bert-task", model(), "--lr 2e-3 --micro-batch-size 8 ", more);
  }
};

TEST_F(FinetuningCommand, LearnsARuleAndTellsMetricsAndPredictionsOfEachFile) {
  const Outcome outcome =
      bash(concat(train("--task MNLI --train-data train.tsv --valid-data dev.tsv test.tsv --epochs 4 --save run; "),
                  "ls run | grep -c step_; grep -c epoch run/metrics.jsonl; wc -l <run/predictions-test.jsonl; "
                  "tail -1 run/predictions-dev.jsonl"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  for (const char* line :
       {" > |epoch: 1| metrics for dev: correct / total = ", " > |epoch: 4| test has no labels: 7 predictions",
        " >> |epoch: 4| overall: correct / total = 33 / 33 = 100.0000 %"})
    EXPECT_NE(outcome.errors.find(line), std::string::npos) << line << "\n" << outcome.errors;
  ASSERT_TRUE(outcome.output.starts_with("4\n4\n7\n")) << outcome.output;
  const nlohmann::json last = nlohmann::json::parse(outcome.output.substr(6));
  EXPECT_EQ(last.at("number"), 32);
  EXPECT_EQ(last.at("uid"), 132);
  EXPECT_EQ(last.at("probabilities").size(), 3u);
}

TEST_F(FinetuningCommand, MegatronsScriptChoosesOptionsAndIsEvaluatedAlone) {
  const std::string task = " --task RACE --valid-data RACE/dev --micro-batch-size 4 " + model();
  const Outcome outcome =
      bash(concat("set -e; espalier tasks/main.py", task,
                  "--lr 2e-3 --train-data RACE/train --epochs 5 --keep-last --save run; "
                  "espalier tasks/main.py",
                  task,
                  "--epochs 0 --load run --predictions out 2>&1 >/dev/null | grep epoch; "
                  "wc -l <out/predictions-dev.jsonl; cmp out/predictions-dev.jsonl run/predictions-dev.jsonl"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors;
  EXPECT_NE(outcome.output.find(" >> |epoch: 0| overall: correct / total = 16 / 16 = 100.0000 %\n16\n"),
            std::string::npos)
      << outcome.output << outcome.errors;
}

TEST_F(FinetuningCommand, BeginsWithAPretrainedModelAndGoesOnAfterAStop) {
  const std::string task = "--task MNLI --train-data train.tsv --valid-data dev.tsv --epochs 2 ";
  const Outcome outcome = bash(concat(
      "set -e; ", train(task + "--save first --epochs 1 2>/dev/null; "),
      train(task + "--pretrained-checkpoint first --save whole 2>log; "), "grep -c 'loaded pretrained weights' log; ",
      train(task + "--pretrained-checkpoint first --save parts --exit-interval 70 --save-interval 70 2>/dev/null; "),
      train(task + "--pretrained-checkpoint first --save parts --load parts 2>/dev/null; "),
      "espalier checkpoint diff whole/step_00000120 parts/step_00000120"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors;
  EXPECT_TRUE(outcome.output.starts_with("1\n")) << outcome.output;
  EXPECT_NE(outcome.output.find("bitwise equal"), std::string::npos) << outcome.output;
}

TEST_F(FinetuningCommand, WhatCannotBeIsRefusedBeforeTheRun) {
  const Outcome outcome = bash(
      concat(train("--task MNLI --train-data train.tsv --valid-data dev.tsv nothing.tsv --pretrained-checkpoint none "
                   "--train-iters 5 --data-path x --save run; "),
             "echo $?; ", train("--task MNLI --epochs 0; "), "echo $?; ", train("--task CoLA --train-data train.tsv; "),
             "echo $?; ", train("--task QQP --train-data train.tsv; "), "echo $?; ",
             train("--task MNLI --train-data test.tsv --micro-batch-size 2; "), "echo $?; ",
             train("--task MNLI --train-data train.tsv --pipeline-model-parallel-size 2; "), "echo $?; ls -d run"));
  EXPECT_EQ(outcome.output, "2\n2\n2\n2\n2\n2\n") << outcome.errors;
  for (const char* problem :
       {"nothing.tsv", "--pretrained-checkpoint none holds no checkpoint",
        "--train-iters 5 (command line): a task counts in epochs", "--data-path x (command line) names token files",
        "--valid-data is required with --epochs 0", "not supported; the tasks are MNLI, QQP and RACE",
        "test.tsv has no labels to train on", "finetuning has no pipeline stages"})
    EXPECT_NE(outcome.errors.find(problem), std::string::npos) << problem << "\n" << outcome.errors;
}

// The script's other use.
TEST_F(FinetuningCommand, MegatronsScriptAsksAModelLambada) {
  const std::string tiny = root() + "/tests/data/gpt2-tiny/",
                    tokenizer = " --vocab-file " + tiny + "vocab.json --merge-file " + tiny + "merges.txt ",
                    shape =
                        " --num-layers 1 --hidden-size 16 --num-attention-heads 2 --max-position-embeddings 32 "
                        "--seq-length 32 --micro-batch-size 2 ";
  const Outcome outcome = bash(concat(
      "set -e; espalier train gpt", shape, tokenizer,
      "--train-iters 2 --lr 1e-3 --split 100,0,0 --eval-iters 0 --num-threads 1 "
      "--save run --save-interval 2 --data-path ",
      root(),
      "/tests/data/owt-20_text_document 2>/dev/null; "
      "printf '%s\\n' '{\"text\": \"The president of the United States\"}' >lambada.jsonl; "
      "espalier tasks/main.py --task LAMBADA --valid-data lambada.jsonl --strict-lambada --tokenizer-type "
      "GPT2BPETokenizer",
      tokenizer, shape, "--log-interval 10 --checkpoint-activations --fp16 --no-load-optim --no-load-rng --load run"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors;
  EXPECT_NE((outcome.output + outcome.errors).find("number correct"), std::string::npos)
      << outcome.output << outcome.errors;
}

}  // namespace finetuning_command_test
}  // namespace espalier
