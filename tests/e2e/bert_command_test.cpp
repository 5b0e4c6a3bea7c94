// `espalier train bert` as a user meets it: from raw text to a model on two processes, and what cannot be trained.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
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
  // "owt_text_sentence".
  void make_sentences() const { ASSERT_EQ(made_once(preprocess("owt", "--split-sentences")).exit_code, 0); }
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
  make_sentences();
  const std::string train = concat("espalier launch --nproc-per-node 2 pretrain_bert.py", shape(),
                                   "--data-path owt_text_sentence --save-interval 10 ");
  const Outcome outcome = bash(concat("set -e; export OMP_WAIT_POLICY=passive; ", train, "--save straight; ", train,
                                      "--save stopped --exit-interval 10; ", train, "--save stopped --load stopped; ",
                                      "espalier checkpoint diff straight stopped"));
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
  make_sentences();
  const std::string train = concat("espalier train bert", shape(), "--data-path owt_text_sentence --bf16 ");
  const Outcome outcome =
      bash(concat("export OMP_WAIT_POLICY=passive; ", train, "--save straight --save-interval 30 || exit; ", train,
                  "--save killed --save-interval 3 & P=$!; "
                  "until [ -d killed/step_00000003 ]; do sleep 0.01; done; kill -9 $P; wait $P; ",
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
       {"does not say where sentences end", "Rebuild it with 'espalier preprocess --split-sentences'",
        "--max-position-embeddings 64 (command line) is below the sequence length 128", "--reset-position-ids",
        "a BERT's sample comes from one document", "--position-embedding-type alibi", "a BERT learns its positions",
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
  make_sentences();
  const Outcome outcome =
      bash(concat("set -e; espalier train bert", shape(),
                  "--data-path owt_text_sentence --bert-no-binary-head --train-iters 2 --save run --save-interval 2; "
                  "espalier checkpoint inspect run; espalier plan bert",
                  shape(), "--data-path owt_text_sentence"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("lm_head.bias"), std::string::npos);
  for (const char* of_binary_head : {"tokentype_embeddings", "pooler", "binary_head"})
    EXPECT_EQ(outcome.output.find(concat(of_binary_head, ".")), std::string::npos) << of_binary_head;
}

TEST_F(BertCommand, TooFewTokenTypesAreRefused) {
  const Outcome outcome = bash(concat("espalier train bert", shape(), "--bert-num-tokentypes 1 --data-path none"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("--bert-num-tokentypes 1 (command line) is too few for the two halves of a sample; use "
                                "2 or more, or --bert-no-binary-head"),
            std::string::npos)
      << outcome.errors;
}

TEST_F(BertCommand, WhatOnlyAnotherFamilyReadsIsRefused) {
  const Outcome decoder = bash(
      "espalier train gpt --num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8 "
      "--max-position-embeddings 8 --micro-batch-size 1 --train-iters 1 --lr 1 --data-path none "
      "--bert-no-binary-head --mask-prob 0.2 --decoder-seq-length 4");
  EXPECT_EQ(decoder.exit_code, 2);
  for (const char* problem :
       {"--bert-no-binary-head (command line) is not supported: only BERT reads it (espalier train bert)",
        "--mask-prob (command line) is not supported: only BERT and T5 read it",
        "--decoder-seq-length (command line) is not supported: only T5 reads it (espalier train t5)"})
    EXPECT_NE(decoder.errors.find(problem), std::string::npos) << problem << "\n" << decoder.errors;
  const Outcome encoder =
      bash(concat("espalier train bert", shape(), "--data-path none --decoder-seq-length 4 ", "--eod-mask-loss"));
  EXPECT_EQ(encoder.exit_code, 2);
  for (const char* problem : {"--decoder-seq-length (command line) is not supported: only T5 reads it",
                              "--eod-mask-loss (command line) is for decoders"})
    EXPECT_NE(encoder.errors.find(problem), std::string::npos) << problem << "\n" << encoder.errors;
}

// A run of one step.
class BertConversion : public BertCommand {
 protected:
  void train(const std::string& flags) const {
    const Outcome outcome =
        made_once(concat("set -e; ", preprocess("owt", "--split-sentences"), "espalier train bert", shape(),
                         "--data-path owt_text_sentence --train-iters 1 --save run ", "--save-interval 1 ", flags));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  }
  nlohmann::json json(const std::string& name) const {
    return nlohmann::json::parse(read_file(folder_ / "work" / name));
  }
};

TEST_F(BertConversion, ARunGoesToTransformersAndBackAndOnFromThere) {
  train("--apply-residual-connection-post-layernorm --no-bias-gelu-fusion");
  const Outcome outcome = bash(concat(
      "set -e; espalier checkpoint export-hf --load run --output hf --json; "
      "espalier checkpoint import-hf --input hf --save back; espalier checkpoint diff run back || true; "
      "espalier train bert --recipe back/model.toml --load back --finetune --save on --save-interval 1 --seq-length "
      "64 ",
      "--data-path owt_text_sentence --split 90,10,0 --eval-iters 0 --micro-batch-size 4 --train-iters 1 --lr 1e-3 "
      "--num-threads 1 >/dev/null; espalier checkpoint export-hf --load on --output again"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const auto said = nlohmann::json::parse(outcome.output.substr(0, outcome.output.find('\n')));
  EXPECT_EQ(said.at("family"), "bert");
  EXPECT_EQ(said.at("model_type"), "bert");
  EXPECT_EQ(said.at("vocab_rows"), 322);
  EXPECT_EQ(said.at("logits_compared"), true);
  EXPECT_EQ(json("hf/config.json").at("architectures"), nlohmann::json::array({"BertForPreTraining"}));
  EXPECT_EQ(json("hf/config.json").at("pad_token_id"), 0);
  EXPECT_FALSE(json("hf/config.json").contains("eos_token_id"));
  EXPECT_FALSE(fs::exists(folder_ / "work/hf/generation_config.json"));
  const nlohmann::json tokenizer = json("hf/tokenizer_config.json");
  EXPECT_EQ(tokenizer.at("tokenizer_class"), "BertTokenizer");
  EXPECT_EQ(tokenizer.at("model_max_length"), 64);
  EXPECT_EQ(tokenizer.at("mask_token"), "[MASK]");
  EXPECT_EQ(json("hf/tokenizer.json").at("post_processor").at("type"), "TemplateProcessing");
  EXPECT_TRUE(fs::exists(folder_ / "work/again/vocab.txt"));
  EXPECT_EQ(json("again/config.json").at("model_type"), "bert");
  EXPECT_NE(read_file(folder_ / "work/back/model.toml").find("for espalier train bert"), std::string::npos);
}

TEST_F(BertConversion, ARunWithTwoFormsOfGeluIsWrittenWithOneIfAskedTo) {
  train("");
  const Outcome outcome = bash(
      "espalier checkpoint export-hf --load run --output hf; echo export-hf $?; ls; "
      "espalier checkpoint export-hf --load run --output hf -- --openai-gelu; echo export-hf $?; "
      "espalier checkpoint export-hf --load run --output other --model-type llama; echo export-hf $?");
  EXPECT_NE(outcome.output.find("export-hf 2\nowt_"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("export-hf 0\nexport-hf 2\n"), std::string::npos) << outcome.output;
  for (const char* part : {"megatron-bert, where layers and masked-LM head have one form of gelu",
                           "the options after -- change the checkpoint's logits by up to ",
                           "this model is not a llama: it is a BERT, and that a GPT"})
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << "\n" << outcome.errors;
  EXPECT_EQ(json("hf/config.json").at("hidden_act"), "gelu_new");
}

TEST_F(BertConversion, ARunGoesToMegatronAndBack) {
  train("--bf16");
  const Outcome outcome = bash(concat(
      "espalier checkpoint export-megatron --load run --output theirs --tensor-model-parallel-size 2 "
      "--pipeline-model-parallel-size 2 --json; espalier checkpoint import-megatron --input theirs --save back --json; "
      "espalier checkpoint diff run back; espalier checkpoint export-megatron --load run --output x --format "
      "deepspeed; "
      "echo deepspeed $?"));
  EXPECT_NE(outcome.output.find("tensors are bitwise equal"), std::string::npos) << outcome.output << outcome.errors;
  EXPECT_NE(outcome.output.find("\"family\":\"bert\""), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("deepspeed 2"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.errors.find("DeepSpeed's pipeline engine is a decoder, not a BERT: use --format megatron"),
            std::string::npos)
      << outcome.errors;
}

// That the words are those of transformers is compared by tests/oracle/filling_oracle.py.
TEST_F(BertConversion, MasksAreFilledIn) {
  train("--bf16");
  const Outcome outcome = bash(
      "set -e; espalier generate --load run --greedy --json --prompt 'A [MASK] b[SEP]c[MASK]' '[MASK]'; "
      "espalier generate --load run --greedy --prompt 'A [MASK] b[SEP]c[MASK]'; "
      "for i in 1 2; do espalier generate --load run --seed 3 --prompt '[MASK] [MASK] [MASK] [MASK]'; done; "
      "printf '[MASK]%.0s' {1..63} | espalier generate --load run || echo long $?");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  std::istringstream lines(outcome.output);
  std::string line;
  std::getline(lines, line);
  const nlohmann::json two = nlohmann::json::parse(line);
  const auto ids = two.at("prompt_ids").get<std::vector<int>>();
  std::map<std::string, int> id_of;
  std::istringstream words(read_file(data("megatron_tokenizers/bert_lower/vocab.txt")));
  for (std::string word; std::getline(words, word);) id_of.emplace(word, static_cast<int>(id_of.size()));
  EXPECT_EQ(ids, (std::vector<int>{id_of.at("[CLS]"), id_of.at("a"), id_of.at("[MASK]"), id_of.at("b"),
                                   id_of.at("[SEP]"), id_of.at("c"), id_of.at("[MASK]"), id_of.at("[SEP]")}));
  EXPECT_EQ(two.at("generated_ids").size(), 2u);
  for (const double logprob : two.at("logprobs")) EXPECT_TRUE(logprob < 0 && logprob > -std::log(322.0)) << logprob;
  const std::string text = two.at("text");
  EXPECT_EQ(text.substr(0, 1), "A");
  EXPECT_EQ(text.find("[MASK]"), std::string::npos);
  EXPECT_NE(text.find("b[SEP]c"), std::string::npos);
  std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line).at("generated_ids").size(), 1u);
  std::getline(lines, line);
  EXPECT_EQ(line, text);
  std::string first, second;
  std::getline(lines, first), std::getline(lines, second);
  EXPECT_EQ(first, second);
  std::getline(lines, line);
  EXPECT_EQ(line, "long 2");
  EXPECT_NE(outcome.errors.find("a prompt has 65 tokens, but the model has learned 64 positions"), std::string::npos)
      << outcome.errors;
}

// transformers' BertTokenizer finds [MASK] and [SEP] and puts its template around the whole prompt.
TEST_F(BertConversion, ATokenizerWithATemplateGivesAPromptTheSameIds) {
  train("");
  const std::string prompt = "'A [MASK] b[SEP]c[MASK]'";
  const Outcome outcome = bash(concat(
      "set -e; espalier checkpoint export-hf --load run --output hf -- --openai-gelu 2>/dev/null; espalier train bert",
      shape(),
      "--data-path owt_text_sentence --train-iters 1 --save other --save-interval 1 --allow-other-tokenizer "
      "--tokenizer-type PretrainedFromHF --tokenizer-name-or-path hf >/dev/null 2>&1; for run in run other; do "
      "espalier generate --load $run --greedy --json --prompt ",
      prompt, "; done"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  std::istringstream lines(outcome.output.substr(outcome.output.find("{\"prompt\"")));
  std::string ours, theirs;
  std::getline(lines, ours), std::getline(lines, theirs);
  EXPECT_EQ(nlohmann::json::parse(ours).at("prompt_ids"), nlohmann::json::parse(theirs).at("prompt_ids"));
}

TEST_F(BertConversion, WhatOtherModelsCanIsRefusedByName) {
  train("");
  const Outcome outcome = bash(
      concat("espalier generate --load run --prompt hello; echo generate $?; espalier checkpoint import-hf --input ",
             data("hf/gpt2"), " --save gpt --no-check-logits 2>/dev/null; espalier train bert", shape(),
             "--data-path owt_text_sentence --load gpt --finetune; echo train $?"));
  EXPECT_EQ(outcome.output.substr(0, 11), "generate 2\n") << outcome.errors;
  EXPECT_NE(outcome.output.find("train 2\n"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.errors.find("a BERT puts words for [MASK], and the prompt 'hello' has none"), std::string::npos)
      << outcome.errors;
  EXPECT_NE(
      outcome.errors.find("the checkpoint is of model family 'gpt', this run trains 'bert'; use espalier train gpt"),
      std::string::npos)
      << outcome.errors;
}

}  // namespace
}  // namespace espalier
