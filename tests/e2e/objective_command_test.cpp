// Prefix language models and finetuning on packed pairs as a user meets them: from JSONL to text, and what is refused.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"

namespace espalier {
namespace objective_command_test {

class ObjectiveCommand : public Command {
 protected:
  // Sums, as JSONL; shell words that make token files of them and of running text.
  void SetUp() override {
    Command::SetUp();
    std::ofstream pairs(folder_ / "pairs.jsonl");
    for (int a = 0; a < 10; ++a)
      for (int b = 0; b < 30; ++b)
        pairs << "{\"inputs\": \"Say " << a << " and " << b % 10 << ":\", \"targets\": \" " << a << " and " << b % 10
              << ".\"}\n";
  }
  std::string tokenizer() const {
    const std::string folder = root() + "/tests/data/gpt2-tiny/";
    return concat(" --tokenizer-type GPT2BPETokenizer --vocab-file ", folder, "vocab.json --merge-file ", folder,
                  "merges.txt ");
  }
  // `prefix`_inputs_document and `prefix`_targets_document, and ../owt_text_document.
  std::string preprocess(const std::string& prefix) const {
    const std::string common = concat("espalier preprocess_data.py", tokenizer(), "--output-prefix ");
    return concat(common, prefix, " --input ../pairs.jsonl --json-keys inputs 2>/dev/null && ", common, prefix,
                  " --input ../pairs.jsonl --json-keys targets --append-eod 2>/dev/null && ", common, "../owt --input ",
                  root(), "/tests/data/owt-20.jsonl --append-eod 2>/dev/null; ");
  }
  std::string shape() const {
    return concat(
        " --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 "
        "--position-embedding-type alibi --embed-layernorm --micro-batch-size 4 --global-batch-size 16 --train-iters "
        "30 "
        "--lr 1e-2 --lr-decay-style constant --split 90,10,0 --eval-iters 1 --eval-interval 10 --log-interval 1 "
        "--num-threads 1",
        tokenizer());
  }
  std::vector<double> losses(const std::string& run) const {
    std::istringstream lines(read_file(folder_ / "work" / run / "metrics.jsonl"));
    std::vector<double> losses;
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      if (record.contains("sample_hash")) losses.push_back(record.at("lm_loss"));
    }
    return losses;
  }
};

TEST_F(ObjectiveCommand, PairsTrainFromJsonlOnTwoProcessesAndGoOnToTheSameBits) {
  const std::string train = concat("espalier launch --nproc-per-node 2 finetune_t0_non_causal_decoder.py", shape(),
                                   "--data-path p3 --norm-target-loss --save-interval 10 ");
  const Outcome outcome =
      bash(concat("set -e; export OMP_WAIT_POLICY=passive; ", preprocess("p3"), train, "--save straight; ", train,
                  "--save stopped --exit-interval 10; ", train, "--save stopped --load stopped; ",
                  "espalier checkpoint diff straight stopped; "
                  "espalier generate --load straight --prompt 'Say 3 and 4:' --greedy --tokens-to-generate 12"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("bitwise equal"), std::string::npos) << outcome.output;
  const std::vector<double> found = losses("straight");
  ASSERT_EQ(found.size(), 30u);
  EXPECT_LT(found.back(), 0.4 * found.front());
  // It has learnt the form, and where to stop.
  const std::string text = outcome.output.substr(outcome.output.find("Say 3 and 4:"));
  EXPECT_NE(text.find(" and "), text.rfind(" and ")) << text;
  EXPECT_TRUE(text.ends_with(".\n")) << text;
}

TEST_F(ObjectiveCommand, APrefixModelThatIsKilledGoesOnToTheSameBits) {
  const std::string train = concat("espalier pretrain_prefix_lm.py", shape(),
                                   "--data-path ../owt_text_document --loss-on-targets-only --bf16 ");
  const Outcome outcome =
      bash(concat("export OMP_WAIT_POLICY=passive; ", preprocess("p3"), train,
                  "--save straight --save-interval 30 || exit; ", train,
                  "--save killed --save-interval 3 & P=$!; "
                  "until [ -d killed/step_00000003 ]; do sleep 0.01; done; kill -9 $P; wait $P; ",
                  train, "--save killed --load killed --save-interval 3 && espalier checkpoint diff straight killed"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("bitwise equal"), std::string::npos) << outcome.output;
}

TEST_F(ObjectiveCommand, DataSampleShowsWhatIsTrainedOn) {
  const std::string data = concat("espalier data sample --seq-length 24 --num-samples 10,0,0", tokenizer());
  const Outcome pairs =
      bash(concat(preprocess("p3"), data,
                  "--objective multitask --prefixlm --data-path p3 --count 1 "
                  "2>/dev/null; ",
                  data, "--objective multitask --prefixlm --data-path p3 --count 3 --json 2>/dev/null"));
  ASSERT_EQ(pairs.exit_code, 0) << pairs.errors;
  std::istringstream lines(pairs.output);
  std::string line;
  for (const char* begin : {"=== sample 0 of train ===", "--- input: Say ", "--- target: ", "--- input: Say "}) {
    std::getline(lines, line);
    EXPECT_TRUE(line.starts_with(begin)) << line;
  }
  while (std::getline(lines, line) && line[0] != '{') continue;
  const nlohmann::json row = nlohmann::json::parse(line);
  for (const char* key : {"ids", "segments", "is_input"}) EXPECT_EQ(row.at(key).size(), 25u) << key;
  double targets = 0;
  for (size_t at = 0; at < 24; ++at) {
    const bool is_learnt = row["segments"][at + 1] != 0 && row["is_input"][at + 1] == 0;
    EXPECT_EQ(row["loss_mask"][at], is_learnt ? 1 : 0) << at;
    targets += is_learnt;
    if (row["is_input"][at] != 0) {
      EXPECT_EQ(row["is_input"][row["last_keys"][at].get<size_t>() + 1], 0) << "the last of the input " << at;
    }
  }
  EXPECT_EQ(row["num_targets"], targets);

  const std::string prefix =
      concat(data, "--objective prefix --loss-on-targets-only --data-path ../owt_text_document ");
  const Outcome text = bash(concat(prefix, "--count 1 2>/dev/null; ", prefix, "--json --count 1 2>/dev/null; ", data,
                                   "--data-path ../owt_text_document --json --count 1 2>/dev/null"));
  ASSERT_EQ(text.exit_code, 0) << text.errors;
  EXPECT_NE(text.output.find("--- prefix: "), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("--- what follows: "), std::string::npos) << text.output;
  const size_t json = text.output.find("\n{") + 1;
  const nlohmann::json sample = nlohmann::json::parse(text.output.substr(json, text.output.find('\n', json) - json));
  const int64_t end = sample["prefixes"][0][1];
  for (int64_t at = 0; at < 24; ++at) {
    EXPECT_EQ(sample["last_keys"][static_cast<size_t>(at)], std::max(at, end - 1));
    EXPECT_EQ(sample["loss_mask"][static_cast<size_t>(at)], at >= end - 1 ? 1 : 0);
  }
  EXPECT_NE(text.output.rfind("{\"sample\":0,\"ids\":["), std::string::npos);
  EXPECT_EQ(text.output.substr(text.output.rfind("{\"sample\"")).find("loss_mask"), std::string::npos)
      << "plainly causal samples are as they were";
}

TEST_F(ObjectiveCommand, EveryProblemIsSaidAtOnceAndNothingIsWritten) {
  ASSERT_EQ(bash(preprocess("../p3")).exit_code, 0);
  ASSERT_EQ(bash(concat("head -5 ../pairs.jsonl >../few.jsonl; espalier preprocess", tokenizer(),
                        "--output-prefix ../odd --input ../pairs.jsonl --json-keys inputs; espalier preprocess",
                        tokenizer(), "--output-prefix ../odd --input ../few.jsonl --json-keys targets"))
                .exit_code,
            0);
  const Outcome odd = bash(concat("espalier finetune_t0.py", shape(),
                                  "--data-path 1 ../odd 1 ../p3 --prefixlm --window-size 9 --reset-attention-mask "
                                  "--reweight-loss-based-on-position-frequency --num-attention-heads 5 --save run "
                                  "--save-interval 10"));
  EXPECT_EQ(odd.exit_code, 2);
  EXPECT_LT(odd.seconds, 2);
  for (const char* said : {"odd_inputs_document' has 300 documents", "odd_targets_document' has 5: they are not pairs",
                           "--window-size 9 (command line) and --objective multitask",
                           "--reset-attention-mask (command line) is for samples",
                           "--reweight-loss-based-on-position-frequency (command line) needs --objective prefix",
                           "--num-attention-heads 5", "5 problems:"})
    EXPECT_NE(odd.errors.find(said), std::string::npos) << said << "\n" << odd.errors;

  const Outcome plain = bash(concat("espalier train gpt", shape(),
                                    "--data-path ../owt_text_document --prefixlm --norm-target-loss "
                                    "--loss-on-targets-only --save run --save-interval 10"));
  EXPECT_EQ(plain.exit_code, 2);
  EXPECT_NE(plain.errors.find("3 problems:"), std::string::npos) << plain.errors;

  const Outcome text = bash(concat("espalier finetune_t0", shape(), "--data-path ../owt_text_document"));
  EXPECT_EQ(text.exit_code, 2);
  EXPECT_NE(text.errors.find("A data set is two here, PREFIX_inputs_document and PREFIX_targets_document"),
            std::string::npos)
      << text.errors;

  const Outcome longer = bash(concat("espalier finetune_t0", shape(), "--data-path ../p3 --seq-length 4"));
  EXPECT_EQ(longer.exit_code, 2);
  EXPECT_NE(longer.errors.find("none of the 300 pairs 0 to 300 fits into 5 tokens. Give a longer --seq-length."),
            std::string::npos)
      << longer.errors;
  EXPECT_TRUE(fs::is_empty(folder_ / "work"));
}

TEST_F(ObjectiveCommand, IsPlannedValidatedAndComparedLikeAnyRun) {
  const std::string prefix = concat("gpt", shape(), "--objective prefix --data-path ../owt_text_document ");
  const Outcome outcome = bash(concat(
      "set -e; ", preprocess("../p3"), "espalier plan ", prefix, "--gpus 2; ",
      "espalier finetune_t0_non_causal_decoder", shape(), "--data-path ../p3 --validate-only; espalier parity gpt",
      shape(), "--objective multitask --data-path ../p3 --layouts tp1pp1dp1,tp2pp1dp1 --steps 2"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  for (const char* said : {"objective = \"multitask\"", "prefixlm = true", "parameters"})
    EXPECT_NE(outcome.output.find(said), std::string::npos) << said << "\n" << outcome.output;
  EXPECT_TRUE(fs::is_empty(folder_ / "work"));
}

TEST_F(ObjectiveCommand, OnlyWhatIsCausalGoesToHuggingFace) {
  const auto train = [&](const char* name, const char* flags, const char* data) {
    return concat("espalier train gpt", shape(), "--train-iters 1 --save ", name, " --save-interval 1 --data-path ",
                  data, " ", flags, " >/dev/null 2>&1; ");
  };
  const auto export_of = [](const char* name) {
    return concat("espalier checkpoint export-hf --load ", name, " --output hf_", name, "; echo ", name, " $?; ");
  };
  const Outcome outcome = bash(concat(preprocess("p3"), train("causal", "--objective multitask", "p3"),
                                      train("whole", "--objective multitask --prefixlm", "p3"),
                                      train("prefix", "--objective prefix", "../owt_text_document"),
                                      export_of("causal"), export_of("whole"), export_of("prefix"), "ls -d hf_*"));
  EXPECT_EQ(outcome.output, "causal 0\nwhole 2\nprefix 2\nhf_causal\n") << outcome.errors;
  EXPECT_NE(outcome.errors.find("the model is trained with --objective prefix: the tokens of what it is given "
                                "see each other. No family of transformers that can be written expresses that"),
            std::string::npos)
      << outcome.errors;
}

TEST_F(ObjectiveCommand, GenerateSeesThePromptAsTheRunDid) {
  // The same weights, once with a configuration that says so and once without: only the first token of the prompt, of
  // which each sees itself alone, has a continuation that must agree.
  const std::string common = concat(shape(), "--train-iters 20 --save-interval 20 --data-path ../owt_text_document ");
  const Outcome outcome =
      bash(concat("set -e; ", preprocess("../p3"), "espalier train gpt", common, "--save causal >/dev/null 2>&1; ",
                  "espalier pretrain_prefix_lm", common,
                  "--save prefix --load causal --finetune --lr 1e-30 --eval-iters 0 "
                  ">/dev/null 2>&1; for R in causal prefix; do espalier generate --load $R --json --greedy "
                  "--tokens-to-generate 3 --prompt 'the' 'the people of the city and the state'; done"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  std::istringstream lines(outcome.output);
  std::vector<nlohmann::json> texts;
  for (std::string line; std::getline(lines, line);) texts.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(texts.size(), 4u);
  EXPECT_EQ(texts[0]["prompt_ids"].size(), 1u);
  EXPECT_EQ(texts[0]["logprobs"], texts[2]["logprobs"]);
  EXPECT_NE(texts[1]["logprobs"], texts[3]["logprobs"]);
}

}  // namespace objective_command_test
}  // namespace espalier
