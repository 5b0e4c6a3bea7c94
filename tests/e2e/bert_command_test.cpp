// `espalier train bert` as a user meets it: from raw text to a model on two processes, and what cannot be trained.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"

namespace espalier {
namespace {

class BertCommand : public Command {
 protected:
  std::string data(const std::string& name) const { return root() + "/tests/data/" + name; }
  std::string tokenizer() const {
    return concat(" --tokenizer-type BertWordPieceLowerCase --vocab-file ",
                  data("megatron_tokenizers/bert_lower/vocab.txt"), " ");
  }
  // Makes `prefix`_text_sentence, or with other flags `prefix`_text_document.
  std::string preprocess(const std::string& prefix, const std::string& flags) const {
    return concat("espalier preprocess ", flags, " --input ", data("owt-20.jsonl"), " --output-prefix ", prefix,
                  tokenizer(), " 2>/dev/null; ");
  }
  std::string shape() const {
    return concat(
        " --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 "
        "--micro-batch-size 4 --global-batch-size 16 --train-iters 30 --lr 5e-3 --lr-decay-style constant "
        "--split 90,10,0 --eval-iters 1 --eval-interval 10 --log-interval 1 --num-threads 1",
        tokenizer());
  }
  nlohmann::json record(const std::string& run, int64_t step) const {
    std::istringstream lines(read_file(folder_ / "work" / run / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      nlohmann::json record = nlohmann::json::parse(line);
      if (record.at("step") == step && record.contains("sample_hash")) return record;
    }
    return {};
  }
};

TEST_F(BertCommand, TrainsFromRawTextOnTwoProcessesAndGoesOnToTheSameBits) {
  const std::string train = concat("espalier launch --nproc-per-node 2 pretrain_bert.py", shape(),
                                   "--data-path owt_text_sentence --save-interval 10 ");
  const Outcome outcome =
      bash(concat("set -e; export OMP_WAIT_POLICY=passive; ", preprocess("owt", "--split-sentences"), train,
                  "--save straight; ", train, "--save stopped --exit-interval 10; ", train,
                  "--save stopped --load stopped; ", "espalier checkpoint diff straight stopped"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("bitwise equal"), std::string::npos) << outcome.output;
  for (const char* said : {" lm loss: ", " sop loss: ", "lm loss value: ", "sop loss value: "})
    EXPECT_NE((outcome.output + outcome.errors).find(said), std::string::npos) << said;
  // The perplexity of an evaluation is that of the words.
  std::istringstream lines(read_file(folder_ / "work/straight/metrics.jsonl"));
  int64_t evaluations = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (!json.contains("valid")) continue;
    const nlohmann::json& valid = json.at("valid").at("valid");
    EXPECT_NEAR(valid.at("ppl").get<double>(), std::exp(valid.at("lm_loss").get<double>()), 1e-6);
    EXPECT_TRUE(valid.contains("sop_loss"));
    ++evaluations;
  }
  EXPECT_EQ(evaluations, 4);
  const nlohmann::json first = record("straight", 1), last = record("straight", 30);
  ASSERT_TRUE(first.contains("lm_loss") && last.contains("sop_loss"));
  EXPECT_LT(last.at("lm_loss").get<double>(), 0.9 * first.at("lm_loss").get<double>());
}

TEST_F(BertCommand, ARunThatIsKilledGoesOnToTheSameBits) {
  const std::string train = concat("espalier train bert", shape(), "--data-path owt_text_sentence --bf16 ");
  const Outcome outcome =
      bash(concat("export OMP_WAIT_POLICY=passive; ", preprocess("owt", "--split-sentences"), train,
                  "--save straight --save-interval 30 || exit; ", train,
                  "--save killed --save-interval 3 & P=$!; "
                  "until ls -d killed/step_* >/dev/null 2>&1; do sleep 0.01; done; kill -9 $P; wait $P; ",
                  train, "--save killed --load killed --save-interval 3 && espalier checkpoint diff straight killed"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("bitwise equal"), std::string::npos) << outcome.output;
}

TEST_F(BertCommand, EveryProblemIsSaidAtOnceAndNothingIsWritten) {
  ASSERT_EQ(bash(concat(preprocess("../whole", ""), preprocess("../owt", "--split-sentences"))).exit_code, 0);
  const Outcome outcome = bash(
      concat("espalier train bert", shape(),
             "--data-path ../whole_text_document --seq-length 128 --reset-position-ids --position-embedding-type alibi "
             "--num-key-value-heads 2 --window-size 9 --swiglu --mask-prob 0 --save run --save-interval 10"));
  EXPECT_EQ(outcome.exit_code, 2);
  for (const char* said :
       {"does not say where sentences end", "Make it again with 'espalier preprocess --split-sentences'",
        "--max-position-embeddings 64 (command line) is below the sequence length 128", "--reset-position-ids",
        "a BERT's sample is of one document", "--position-embedding-type alibi", "a BERT learns its positions",
        "--num-key-value-heads", "--window-size", "attention of a BERT has no window", "--swiglu",
        "--mask-prob 0: expected a share above 0"})
    EXPECT_NE(outcome.errors.find(said), std::string::npos) << said << "\n" << outcome.errors;
  EXPECT_NE(outcome.errors.find("8 problems:"), std::string::npos) << outcome.errors;
  EXPECT_TRUE(fs::is_empty(folder_ / "work"));
}

TEST_F(BertCommand, ATokenizerWithoutMaskIsRefused) {
  ASSERT_EQ(bash(preprocess("../owt", "--split-sentences")).exit_code, 0);
  const Outcome outcome =
      bash(concat("espalier train bert", shape(), "--data-path ../owt_text_sentence --allow-other-tokenizer ",
                  "--tokenizer-type GPT2BPETokenizer --vocab-file ", data("gpt2-tiny/vocab.json"), " --merge-file ",
                  data("gpt2-tiny/merges.txt")));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("BERT needs the special tokens CLS, SEP, MASK, PAD"), std::string::npos)
      << outcome.errors;
}

TEST_F(BertCommand, OneTextASampleNeedsNoSentences) {
  const Outcome outcome =
      bash(concat("set -e; ", preprocess("owt", "--split-sentences"), "espalier train bert", shape(),
                  "--data-path owt_text_sentence --bert-no-binary-head --train-iters 2 --save run --save-interval 2; "
                  "espalier checkpoint inspect run; espalier plan bert",
                  shape(), "--data-path owt_text_sentence"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("lm_head.bias"), std::string::npos);
  for (const char* of_binary_head : {"tokentype_embeddings", "pooler", "binary_head"})
    EXPECT_EQ(outcome.output.find(concat(of_binary_head, ".")), std::string::npos) << of_binary_head;
}

TEST_F(BertCommand, WhatOtherModelsCanIsRefusedByName) {
  const Outcome outcome = bash(
      concat(preprocess("owt", "--split-sentences"), "espalier train bert", shape(),
             "--data-path owt_text_sentence --train-iters 1 --save run --save-interval 1 2>/dev/null >/dev/null; ",
             "espalier generate --load run --prompt hello; echo generate $?; espalier checkpoint export-hf --load run "
             "--output "
             "hf; echo export-hf $?; ls"));
  EXPECT_EQ(outcome.output.substr(0, outcome.output.find("owt_")), "generate 2\nexport-hf 2\n") << outcome.errors;
  EXPECT_NE(outcome.errors.find("holds a BERT, which does not continue text"), std::string::npos) << outcome.errors;
  // Megatron's BERT has two forms of gelu, transformers' class one.
  EXPECT_NE(outcome.errors.find("layers and masked-LM head have one form of gelu"), std::string::npos)
      << outcome.errors;
}

}  // namespace
}  // namespace espalier
