#include <gtest/gtest.h>

#include "base/format.h"
#include "tests/support/gpt_options.h"

namespace espalier::config::model_options {
namespace {

using Words = std::vector<std::string>;
using families::PositionEmbedding;
using spec::Activation;

const std::string kRun =
    "--num-layers 2 --hidden-size 96 --num-attention-heads 12 --seq-length 33 --lr 1e-3 --data-path owt "
    "--micro-batch-size 3 --global-batch-size 6 --train-iters 10 ";
const std::string kRotary = kRun + "--position-embedding-type rotary ";
const std::string kLearned = kRun + "--max-position-embeddings 33 ";

families::GptConfig model_of(const std::string& flags) {
  const Parsed run(flags);
  EXPECT_EQ(run.problems.messages(), Words{}) << flags;
  return run.model();
}

TEST(GptModelOptions, ArgonnesLlamaLineIsALlama) {
  const families::GptConfig model = model_of(
      kRun +
      "--max-position-embeddings 66 --swiglu --normalization rmsnorm --use-rotary-position-embeddings "
      "--no-position-embedding --rotary-position-embeddings-theta 50000 --num-key-value-heads 4 --disable-bias-linear "
      "--untie-embeddings-and-output-weights --ffn-hidden-size 250");
  EXPECT_EQ(model.activation, Activation::kSwiglu);
  EXPECT_EQ(model.normalization, spec::Normalization::kRmsNorm);
  EXPECT_EQ(model.position_embedding, PositionEmbedding::kRotary);
  EXPECT_EQ(model.rotary_base, 50000);
  EXPECT_EQ(model.num_query_groups, 4);
  EXPECT_EQ(model.group_channels(), 5 * 8);
  EXPECT_EQ(model.ffn_hidden_size, 250);
  EXPECT_EQ(model.max_position_embeddings, 66);
  EXPECT_FALSE(model.add_bias_linear || model.tie_output);
}

TEST(GptModelOptions, NvidiasSpellingsGiveTheSameModel) {
  const std::string common =
      kRun + "--swiglu --disable-bias-linear --add-qkv-bias --qk-layernorm --rotary-percent 0.5 ";
  const families::GptConfig model =
      model_of(common +
               "--normalization RMSNorm --position-embedding-type rope --rotary-base 1e6 --group-query-attention "
               "--num-query-groups 4 --norm-epsilon 1e-6 --use-rope-scaling --window-size 7,0");
  EXPECT_EQ(model,
            model_of(common + "--normalization rmsnorm --position-embedding-type rotary --num-key-value-heads 4 "
                              "--rotary-position-embeddings-theta 1e6 --layernorm-epsilon 1e-6 --window-size 8 "
                              "--rope-scaling-type llama3 --rope-scaling-factor 8 --rope-scaling-low-freq-factor 1 "
                              "--rope-scaling-high-freq-factor 4 "
                              "--rope-scaling-original-max-position-embeddings 8192"));
  EXPECT_EQ(model.window_size, 8);
  EXPECT_EQ(model_of(kRun + "--max-position-embeddings 33 --group-query-attention").num_query_groups, 1);
  EXPECT_EQ(model_of(kRotary + "--rotary-seq-len-interpolation-factor 4").rope_scaling.factor, 4);
  EXPECT_EQ(model_of(kRotary + "--window-size=-1,0").window_size, 0);
}

TEST(GptModelOptions, EachActivationHasItsWidth) {
  const std::vector<std::tuple<std::string, Activation, int64_t>> expected = {
      {"", Activation::kGeluTanh, 384},
      {"--no-bias-gelu-fusion", Activation::kGeluErf, 384},
      {"--no-bias-gelu-fusion --openai-gelu", Activation::kGeluTanh, 384},
      {"--squared-relu", Activation::kSquaredRelu, 384},
      {"--swiglu", Activation::kSwiglu, 256},  // int(4 * 96 * 2 / 3 / 64) * 64, as Argonne's
      {"--glu-activation swiglu --no-bias-gelu-fusion", Activation::kSwiglu, 384},
      {"--glu-activation geglu --no-bias-gelu-fusion", Activation::kGeglu, 384},
      {"--glu-activation reglu", Activation::kReglu, 384},
      {"--glu-activation liglu", Activation::kLiglu, 384},
      {"--activation geglu_tanh", Activation::kGegluTanh, 384},
      {"--activation relu", Activation::kRelu, 384},
      {"--activation silu", Activation::kSilu, 384}};
  for (const auto& [flags, activation, width] : expected) {
    const families::GptConfig model = model_of(kLearned + flags);
    EXPECT_EQ(model.activation, activation) << flags;
    EXPECT_EQ(model.ffn_hidden_size, width) << flags;
  }
}

TEST(GptModelOptions, PositionsThatLearnNothingNeedNoLength) {
  EXPECT_EQ(model_of(kRotary).max_position_embeddings, 33);
  EXPECT_EQ(model_of(kRun + "--position-embedding-type none").position_embedding, PositionEmbedding::kNone);
  EXPECT_EQ(model_of(kRun + "--no-position-embedding").position_embedding, PositionEmbedding::kNone);
  EXPECT_EQ(model_of(kLearned + "--position-embedding-type alibi --no-position-embedding").position_embedding,
            PositionEmbedding::kAlibi);
}

TEST(GptModelOptions, ResolvedOptionsReadBackToTheSameModel) {
  std::string factors;
  for (int i = 0; i < 4; ++i) factors += concat(" 1.", i);
  for (const std::string& flags :
       {kRotary + "--use-rope-scaling --rope-scaling-factor 4 --group-query-attention --num-query-groups 3 --swiglu",
        kRotary +
            "--rope-scaling-type longrope --rope-scaling-original-max-position-embeddings 16 "
            "--rope-scaling-attention-factor 1.25 --rope-scaling-short-factors" +
            factors + " --rope-scaling-long-factors" + factors,
        kRun + "--use-rotary-position-embeddings --window-size 16,0 --glu-activation reglu",
        kLearned + "--squared-relu"}) {
    const Parsed run(flags);
    ASSERT_EQ(run.problems.messages(), Words{}) << flags;
    Parsed again("");
    again.problems = Problems();
    again.table.parse_toml(run.table.to_toml(), "config.toml", again.problems);
    resolve(again.config, again.table, again.problems);
    EXPECT_EQ(again.problems.messages(), Words{}) << flags;
    EXPECT_EQ(again.model(), run.model()) << flags;
    EXPECT_EQ(again.table.to_toml(), run.table.to_toml()) << flags;
  }
}

void expect_message(const std::string& flags, const std::string& message) {
  EXPECT_EQ(Parsed(flags).problems.messages(), Words{message}) << flags;
}

TEST(GptModelOptions, ContradictionsAreNamed) {
  expect_message(kLearned + "--num-query-groups 4",
                 "--num-query-groups 4 (command line) is not read by Megatron without --group-query-attention; give "
                 "both, or --num-key-value-heads 4");
  expect_message(kLearned + "--group-query-attention --num-query-groups 4 --num-key-value-heads 2",
                 "--num-query-groups 4 (command line) and --num-key-value-heads 2 (command line) differ; give one");
  expect_message(kLearned + "--swiglu --glu-activation geglu --ffn-hidden-size 8",
                 "--swiglu (command line): the activation is geglu already; give one of the two");
  expect_message(kLearned + "--use-rotary-position-embeddings --position-embedding-type alibi",
                 "--use-rotary-position-embeddings and --position-embedding-type alibi (command line) are mutually "
                 "exclusive; give one");
  expect_message(
      kLearned + "--no-position-embedding --position-embedding-type absolute",
      "--no-position-embedding and --position-embedding-type absolute (command line) are mutually exclusive; "
      "give one");
  expect_message(kLearned + "--rotary-percent 0.5",
                 "--rotary-percent 0.5 (command line) needs --position-embedding-type rotary; give both, or leave it "
                 "out");
  expect_message(kLearned + "--qk-layernorm",
                 "--qk-layernorm is an RMS norm of every head and goes with --normalization rmsnorm; give both, or "
                 "leave --qk-layernorm out");
}

TEST(GptModelOptions, ValuesThatNoModelHasAreNamed) {
  expect_message(kLearned + "--num-key-value-heads 5",
                 "--num-key-value-heads 5 (command line): 5 heads of keys and values do not divide "
                 "--num-attention-heads 12 (command line); use 4 or 6");
  expect_message(kRotary + "--rotary-percent 0.4",
                 "--rotary-percent 0.4 (command line) of the 8 channels of a head is 3 channels, which are not pairs; "
                 "use a share that makes an even number, at least 2");
  expect_message(kRotary + "--rope-scaling-type llama3",
                 "--rope-scaling-type llama3 (command line) needs --rope-scaling-original-max-position-embeddings, the "
                 "longest sequence before the scaling; Llama 3.1's is 8192");
  expect_message(kRotary + "--rope-scaling-type dynamic",
                 "--rope-scaling-type dynamic (command line) is not supported: its frequencies change with the length "
                 "of each input; use yarn or linear");
  expect_message(kRotary + "--window-size 4,4",
                 "--window-size 4,4 (command line) is neither a number of keys (0: all) nor LEFT,0 (LEFT keys "
                 "before the query, none after it; -1,0: all)");
  expect_message(kRotary +
                     "--rope-scaling-type longrope --rope-scaling-original-max-position-embeddings 8 "
                     "--rope-scaling-short-factors 1 1 1 1 --rope-scaling-long-factors 1 1 x 1",
                 "--rope-scaling-long-factors: 'x' is not a number above 0");
  expect_message(kRotary +
                     "--rope-scaling-type longrope --rope-scaling-original-max-position-embeddings 8 "
                     "--rope-scaling-short-factors 1 1 1 1 --rope-scaling-long-factors 1 1 1",
                 "--rope-scaling-long-factors has 3 numbers, but longrope needs one for each of the 4 pairs of rotated "
                 "channels");
  expect_message(kRotary + "--hidden-size 12 --kv-channels 8 --swiglu",
                 "--swiglu makes the MLP's width 2/3 of 4 * hidden size in multiples of 64, which is 0 for "
                 "--hidden-size 12 (command line); give --ffn-hidden-size");
}

TEST(GptModelOptions, GroupsDivideAmongTensorAndContextRanks) {
  const std::string grouped = kLearned + "--num-key-value-heads 3 ";
  EXPECT_EQ(Parsed(grouped + "--tensor-model-parallel-size 3", 3).problems.messages(), Words{});
  EXPECT_EQ(Parsed(grouped + "--context-parallel-size 3", 3).problems.messages(), Words{});
  EXPECT_EQ(Parsed(grouped + "--tensor-model-parallel-size 2", 2).problems.messages(),
            Words{"--tensor-model-parallel-size 2 (command line) does not divide the 3 heads of keys and values "
                  "(--num-key-value-heads); use 1 or 3"});
  EXPECT_EQ(
      Parsed(kLearned + "--seq-length 30 --num-key-value-heads 3 --context-parallel-size 2", 2).problems.messages(),
      Words{"--context-parallel-size 2 (command line) does not divide the 3 heads of keys and values of a tensor "
            "rank (3 / 1), which attention exchanges; use 1 or 3"});
}

}  // namespace
}  // namespace espalier::config::model_options
