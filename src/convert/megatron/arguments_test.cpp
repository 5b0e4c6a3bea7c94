// Arguments of NVIDIA's Megatron-LM, by the names and defaults of its parser, as models here; and our models as such
// arguments.
#include "convert/megatron/arguments.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/run_options.h"
#include "convert/gpt/formats.h"
#include "convert/model_config.h"
#include "families/gpt/config.h"

namespace espalier::convert::arguments_test {
namespace {

using store::TorchItems;
using store::TorchPairs;
using store::TorchValue;
using Kind = spec::RopeScaling::Kind;
using Changes = std::vector<std::pair<std::string, TorchValue>>;

TorchValue yes() { return TorchValue::boolean(true); }
TorchValue no() { return TorchValue::boolean(false); }
TorchValue whole(int64_t value) { return TorchValue::integer(value); }
TorchValue number(double value) { return TorchValue::real(value); }
TorchValue text(const char* value) { return TorchValue::string(value); }

// What its parser makes of --num-layers 2 --hidden-size 8 --num-attention-heads 4 --seq-length 16 ..., with changes.
TorchValue nvidia(const Changes& changes = {}) {
  Changes all = {{"num_layers", whole(2)},
                 {"hidden_size", whole(8)},
                 {"ffn_hidden_size", whole(32)},
                 {"num_attention_heads", whole(4)},
                 {"group_query_attention", no()},
                 {"num_query_groups", whole(1)},
                 {"kv_channels", whole(2)},
                 {"seq_length", whole(16)},
                 {"max_position_embeddings", whole(16)},
                 {"position_embedding_type", text("learned_absolute")},
                 {"add_position_embedding", yes()},
                 {"use_rotary_position_embeddings", no()},
                 {"rotary_base", whole(10000)},
                 {"rotary_percent", number(1)},
                 {"rotary_interleaved", no()},
                 {"rotary_seq_len_interpolation_factor", TorchValue()},
                 {"use_rope_scaling", no()},
                 {"rope_scaling_factor", number(8)},
                 {"normalization", text("LayerNorm")},
                 {"norm_epsilon", number(1e-5)},
                 {"apply_layernorm_1p", no()},
                 {"add_bias_linear", yes()},
                 {"add_qkv_bias", no()},
                 {"window_size", TorchValue()},
                 {"multi_latent_attention", no()},
                 {"num_experts", TorchValue()},
                 {"moe_router_topk", whole(2)},
                 {"mtp_num_layers", TorchValue()},
                 {"softmax_type", text("vanilla")},
                 {"micro_batch_size", whole(2)},
                 {"global_batch_size", whole(8)},
                 {"train_iters", whole(6)},
                 {"train_samples", TorchValue()},
                 {"lr", number(1e-2)}};
  for (const auto& [name, value] : changes) {
    const std::string& key = name;
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& entry) { return entry.first == key; });
    if (found != all.end())
      found->second = value;
    else
      all.emplace_back(name, value);
  }
  TorchPairs pairs;
  for (const auto& [name, value] : all) pairs.emplace_back(TorchValue::string(name), value);
  return TorchValue::record("argparse.Namespace", {}, TorchValue::dict(pairs));
}

families::GptConfig gpt_of(const Changes& changes, const std::vector<std::string>& more = {}) {
  return families::gpt_config(megatron_options(nvidia(changes), "file", more, gpt_formats()).config);
}

std::string error_of(const Changes& changes) {
  try {
    gpt_of(changes);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MegatronArguments, ReadsNvidiasNamesOfTheModel) {
  EXPECT_EQ(gpt_of({}).layernorm_epsilon, 1e-5);
  EXPECT_EQ(gpt_of({{"norm_epsilon", number(1e-6)}}).layernorm_epsilon, 1e-6);
  EXPECT_EQ(gpt_of({{"norm_epsilon", number(1e-6)}, {"layernorm_epsilon", number(1e-6)}}).layernorm_epsilon, 1e-6);
  EXPECT_EQ(gpt_of({}).num_groups(), 4);
  EXPECT_EQ(gpt_of({{"group_query_attention", yes()}, {"num_query_groups", whole(2)}}).num_groups(), 2);
  EXPECT_EQ(gpt_of({{"group_query_attention", yes()}, {"num_query_groups", whole(4)}}).num_groups(), 4);
  EXPECT_TRUE(gpt_of({}).add_bias_linear);
  EXPECT_FALSE(gpt_of({{"add_bias_linear", no()}}).add_bias_linear);
  EXPECT_EQ(gpt_of({{"normalization", text("RMSNorm")}}).normalization, spec::Normalization::kRmsNorm);
  // 4 keys before the query, and the query's own.
  EXPECT_EQ(gpt_of({{"window_size", TorchValue::tuple({whole(4), whole(0)})}}).window_size, 5);
  EXPECT_EQ(gpt_of({{"window_size", TorchValue::list({whole(-1), whole(0)})}}).window_size, 0);
}

TEST(MegatronArguments, ReadsNvidiasPositions) {
  using families::PositionEmbedding;
  EXPECT_EQ(gpt_of({}).position_embedding, PositionEmbedding::kLearned);
  EXPECT_EQ(gpt_of({{"add_position_embedding", no()}}).position_embedding, PositionEmbedding::kNone);
  EXPECT_EQ(gpt_of({{"position_embedding_type", text("none")}}).position_embedding, PositionEmbedding::kNone);
  const Changes rope = {{"position_embedding_type", text("rope")}};
  EXPECT_EQ(gpt_of(rope).position_embedding, PositionEmbedding::kRotary);
  EXPECT_EQ(gpt_of(rope).rope_scaling, spec::RopeScaling());
  // The older flag, with the default of the newer option.
  const Changes old = {{"use_rotary_position_embeddings", yes()}, {"add_position_embedding", no()}};
  EXPECT_EQ(gpt_of(old).position_embedding, PositionEmbedding::kRotary);
}

TEST(MegatronArguments, ReadsNvidiasScalingOfPositions) {
  const auto scaling = [](Changes changes) {
    changes.emplace_back("position_embedding_type", text("rope"));
    return gpt_of(changes).rope_scaling;
  };
  const spec::RopeScaling llama = scaling({{"use_rope_scaling", yes()}, {"rope_scaling_factor", number(32)}});
  EXPECT_EQ(llama.kind, Kind::kLlama3);
  EXPECT_EQ(llama.factor, 32);
  EXPECT_EQ(llama.original_max_position_embeddings, 8192);
  const spec::RopeScaling linear = scaling({{"rotary_seq_len_interpolation_factor", whole(4)}});
  EXPECT_EQ(linear.kind, Kind::kLinear);
  EXPECT_EQ(linear.factor, 4);
}

TEST(MegatronArguments, RefusesByNameModelsThatNoOptionMakes) {
  const std::string error = error_of({{"apply_layernorm_1p", yes()}, {"num_experts", whole(8)}});
  EXPECT_NE(error.find("file: args.apply_layernorm_1p: True is not supported: the weights of norms"), std::string::npos)
      << error;
  EXPECT_NE(error.find("file: args.num_experts: int 8 is not supported: there are no mixtures of experts"),
            std::string::npos)
      << error;
  const Changes each = {{"multi_latent_attention", yes()},
                        {"mtp_num_layers", whole(1)},
                        {"softmax_type", text("learnable")},
                        {"num_experts", TorchValue::list({whole(4)})},
                        {"qk_l2_norm", yes()},
                        {"heterogeneous_layers_config_path", text("layers.json")}};
  for (const auto& [name, value] : each)
    EXPECT_NE(error_of({{name, value}}).find("args." + name + ": "), std::string::npos) << error_of({{name, value}});
  EXPECT_EQ(error_of({{"num_experts", TorchValue::list({whole(1)})}, {"mlp_type", text("standard")}}), "no error");
}

TEST(MegatronArguments, RefusesTwoSpellingsThatDiffer) {
  EXPECT_EQ(error_of({{"layernorm_epsilon", number(1e-6)}}),
            "file: args.norm_epsilon: expected 1e-06, as args.layernorm_epsilon says, found 1e-05");
}

TEST(MegatronArguments, WithoutALengthOfTheRunMakeAConfigurationThatTrainsNothing) {
  const Changes none = {{"train_iters", TorchValue()}};
  EXPECT_TRUE(megatron_options(nvidia(none), "file", {}, gpt_formats()).config.data.eval_only);
  EXPECT_FALSE(megatron_options(nvidia(none), "file", {"--train-iters", "9"}, gpt_formats()).config.data.eval_only);
  EXPECT_FALSE(megatron_options(nvidia(), "file", {}, gpt_formats()).config.data.eval_only);
}

// The options of a model, resolved.
struct Ours : config::RunOptions {
  explicit Ours(const std::string& more) : RunOptions(families::gpt_family()) {
    Problems problems;
    table.parse_toml(
        "num_layers = 2\nhidden_size = 8\nnum_attention_heads = 4\nseq_length = 16\nmax_position_embeddings = 16\n"
        "micro_batch_size = 1\neval_only = true\n" +
            more,
        "test", problems);
    config::resolve(config, table, problems);
    problems.raise();
  }
};

constexpr const char* kRotary = "position_embedding_type = \"rotary\"\n";

TEST(MegatronArguments, OfOurModelsAreReadBackAsTheSame) {
  const std::string rotary = kRotary;
  for (const std::string& more :
       {std::string(),
        rotary +
            "rotary_percent = 0.5\nkv_channels = 4\nrotary_position_embeddings_theta = 5000.0\nwindow_size = \"7\"\n",
        std::string("num_key_value_heads = 2\nnormalization = \"rmsnorm\"\nlayernorm_epsilon = 1e-6\n"),
        std::string("num_key_value_heads = 4\n"), std::string("position_embedding_type = \"none\"\n"),
        std::string("disable_bias_linear = true\nadd_qkv_bias = true\nactivation = \"swiglu\"\n"),
        std::string("no_bias_gelu_fusion = true\n"), std::string("no_bias_gelu_fusion = true\nopenai_gelu = true\n"),
        std::string("activation = \"geglu\"\nembed_layernorm = true\nuntie_embeddings_and_output_weights = true\n")}) {
    const Ours ours(more);
    const auto unsaid = unsaid_options(ours.config, ours.table);
    EXPECT_TRUE(unsaid.empty()) << more << unsaid[0];
    const TorchValue args =
        TorchValue::record("argparse.Namespace", {}, TorchValue::dict(namespace_of(ours.config, ours.table)));
    EXPECT_TRUE(
        is_same_model(model_of(megatron_options(args, "file", {}, gpt_formats()).config), model_of(ours.config)))
        << more;
  }
}

TEST(MegatronArguments, OfOurModelsHaveNvidiasNamesToo) {
  const Ours ours("num_key_value_heads = 2\nnormalization = \"rmsnorm\"\ndisable_bias_linear = true\n");
  const TorchValue args = TorchValue::dict(namespace_of(ours.config, ours.table));
  EXPECT_EQ(args.at("normalization").as_string(""), "RMSNorm");
  EXPECT_FALSE(args.at("add_bias_linear").as_bool(""));
  EXPECT_TRUE(args.at("group_query_attention").as_bool(""));
  EXPECT_EQ(args.at("num_query_groups").as_int(""), 2);
  EXPECT_EQ(args.at("num_key_value_heads").as_int(""), 2);
  const Ours plain("");
  const TorchValue of_plain = TorchValue::dict(namespace_of(plain.config, plain.table));
  EXPECT_EQ(of_plain.at("normalization").as_string(""), "LayerNorm");
  EXPECT_TRUE(of_plain.at("add_bias_linear").as_bool(""));
  EXPECT_FALSE(of_plain.at("group_query_attention").as_bool(""));
}

TEST(MegatronArguments, NameTheOptionsThatTheyCannotSay) {
  const Ours linear(std::string(kRotary) + "rope_scaling_type = \"linear\"\nrope_scaling_factor = 4.0\n");
  EXPECT_EQ(unsaid_options(linear.config, linear.table),
            (std::vector<std::string>{"--rope-scaling-type linear --rope-scaling-factor 4.0"}));
  const Ours llama(std::string(kRotary) + "use_rope_scaling = true\n");
  EXPECT_EQ(
      unsaid_options(llama.config, llama.table).at(0),
      "--rope-scaling-type llama3 --rope-scaling-factor 8.0 --rope-scaling-original-max-position-embeddings 8192");
}

}  // namespace
}  // namespace espalier::convert::arguments_test
