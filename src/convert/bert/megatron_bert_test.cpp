// BERTs in checkpoints of Megatron's releases: whose model it is, names of their parameters, and their arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/run_options.h"
#include "convert/bert/formats.h"
#include "convert/gpt/formats.h"
#include "convert/megatron/arguments.h"
#include "convert/model_config.h"
#include "families/bert/config.h"

namespace espalier::convert::megatron_bert_test {
namespace {

using spec::Activation;
using store::TorchPairs;
using store::TorchValue;
using testing::HasSubstr;
using Changes = std::vector<std::pair<std::string, TorchValue>>;

TorchValue yes() { return TorchValue::boolean(true); }
TorchValue no() { return TorchValue::boolean(false); }

// What upstream's and NVIDIA's parsers make of a BERT, with what they keep in any case; later values win.
TorchValue arguments(Changes changes) {
  Changes all = {{"num_layers", TorchValue::integer(2)},
                 {"hidden_size", TorchValue::integer(8)},
                 {"ffn_hidden_size", TorchValue::integer(32)},
                 {"num_attention_heads", TorchValue::integer(4)},
                 {"kv_channels", TorchValue::integer(2)},
                 {"seq_length", TorchValue::integer(16)},
                 {"max_position_embeddings", TorchValue::integer(16)},
                 {"position_embedding_type", TorchValue::global("megatron.enums.PositionEmbeddingType.absolute")},
                 {"bert_binary_head", yes()},
                 {"bias_gelu_fusion", yes()},
                 {"openai_gelu", no()},
                 {"mask_prob", TorchValue::real(0.25)},
                 {"embed_layernorm", no()},
                 {"glu_activation", TorchValue()},
                 {"num_query_groups", TorchValue::integer(1)},
                 {"group_query_attention", no()},
                 {"rotary_percent", TorchValue::real(1)},
                 {"rotary_base", TorchValue::integer(10000)},
                 {"rope_scaling_factor", TorchValue::real(8)},
                 {"normalization", TorchValue::string("LayerNorm")},
                 {"add_bias_linear", yes()},
                 {"micro_batch_size", TorchValue::integer(2)},
                 {"tokenizer_type", TorchValue::string("BertWordPieceLowerCase")},
                 {"vocab_file", TorchValue::string("vocab.txt")},
                 {"train_iters", TorchValue::integer(6)},
                 {"lr", TorchValue::real(1e-2)}};
  TorchPairs pairs;
  for (const auto& [name, value] : all) {
    const auto changed =
        std::find_if(changes.begin(), changes.end(), [key = name](const auto& one) { return one.first == key; });
    pairs.emplace_back(TorchValue::string(name), changed == changes.end() ? value : changed->second);
    if (changed != changes.end()) changes.erase(changed);
  }
  for (const auto& [name, value] : changes) pairs.emplace_back(TorchValue::string(name), value);
  return TorchValue::record("argparse.Namespace", {}, TorchValue::dict(pairs));
}

families::BertConfig model_with(const Changes& changes) {
  return families::bert_config(megatron_options(arguments(changes), "file", {}, bert_formats()).config);
}

std::string error_of(const Changes& changes) {
  try {
    model_with(changes);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MegatronBert, ReadsUpstreamsArguments) {
  const families::BertConfig model = model_with({});
  EXPECT_EQ(model.num_layers, 2);
  EXPECT_TRUE(model.binary_head);
  EXPECT_EQ(model.num_tokentypes, 2);
  EXPECT_EQ(model.activation, Activation::kGeluTanh);
  EXPECT_EQ(model.head_activation, Activation::kGeluErf);
  EXPECT_FALSE(model.residual_from_layernorm);
  EXPECT_EQ(model_with({{"bert_binary_head", no()}}).num_tokentypes, 0);
  EXPECT_EQ(model_with({{"bias_gelu_fusion", no()}}).activation, Activation::kGeluErf);
  EXPECT_EQ(model_with({{"openai_gelu", yes()}}).head_activation, Activation::kGeluTanh);
  EXPECT_TRUE(model_with({{"apply_residual_connection_post_layernorm", yes()}}).residual_from_layernorm);
  EXPECT_EQ(model_with({{"norm_epsilon", TorchValue::real(1e-6)}}).layernorm_epsilon, 1e-6);
  const config::RunConfig run = megatron_options(arguments({}), "file", {}, bert_formats()).config;
  EXPECT_EQ(run.model.as<families::BertSettings>().mask_probability, 0.25);
}

TEST(MegatronBert, RefusesArgumentsOfOtherModelsWithTheReason) {
  EXPECT_THAT(error_of({{"embed_layernorm", yes()}}), HasSubstr("a BERT has no norm after its embeddings"));
  EXPECT_THAT(error_of({{"swiglu", yes()}}), HasSubstr("the activation of a BERT is gelu"));
  EXPECT_THAT(error_of({{"glu_activation", TorchValue::string("geglu")}}),
              HasSubstr("the activation of a BERT is gelu"));
  EXPECT_THAT(error_of({{"add_bias_linear", no()}}), HasSubstr("have layer norms and biases"));
  EXPECT_THAT(error_of({{"normalization", TorchValue::string("RMSNorm")}}),
              HasSubstr("the norms of a BERT are layer norms"));
  EXPECT_THAT(error_of({{"position_embedding_type", TorchValue::string("rope")}}),
              HasSubstr("a BERT learns its positions"));
  EXPECT_THAT(error_of({{"untie_embeddings_and_output_weights", yes()}}), HasSubstr("uses the word embeddings"));
  EXPECT_THAT(error_of({{"num_experts", TorchValue::integer(8)}}), HasSubstr("no mixtures of experts"));
}

TEST(MegatronBert, ArgumentsOfOurModelsAreReadBackAsTheSame) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{},
        {"--openai-gelu"},
        {"--no-bias-gelu-fusion"},
        {"--bert-no-binary-head"},
        {"--apply-residual-connection-post-layernorm", "--layernorm-epsilon", "1e-6"}}) {
    config::RunOptions ours(families::bert_family());
    Problems problems;
    std::vector<std::string> words = {"--num-layers",
                                      "2",
                                      "--hidden-size",
                                      "8",
                                      "--num-attention-heads",
                                      "4",
                                      "--seq-length",
                                      "16",
                                      "--max-position-embeddings",
                                      "16",
                                      "--micro-batch-size",
                                      "1",
                                      "--vocab-file",
                                      "vocab.txt",
                                      "--eval-only",
                                      "true"};
    words.insert(words.end(), more.begin(), more.end());
    ours.table.parse(words, problems);
    config::resolve(ours.config, ours.table, problems);
    problems.raise();
    const auto unsaid = unsaid_options(ours.config, ours.table);
    EXPECT_TRUE(unsaid.empty()) << unsaid[0];
    EXPECT_TRUE(bert_formats().megatron.obstacles(ours.config).empty());
    const TorchValue args =
        TorchValue::record("argparse.Namespace", {}, TorchValue::dict(namespace_of(ours.config, ours.table)));
    EXPECT_TRUE(
        is_same_model(model_of(megatron_options(args, "file", {}, bert_formats()).config), model_of(ours.config)));
  }
}

TEST(MegatronBert, TypesThatUpstreamCannotHaveAreAnObstacle) {
  const config::RunConfig run =
      megatron_options(arguments({}), "file", {"--bert-num-tokentypes", "3"}, bert_formats()).config;
  ASSERT_EQ(bert_formats().megatron.obstacles(run).size(), 1u);
  EXPECT_THAT(bert_formats().megatron.obstacles(run)[0], HasSubstr("--bert-num-tokentypes 3: Megatron's BERT has 2"));
}

TEST(MegatronBert, NamesTellWhoseModelItIs) {
  const std::set<std::string> bert = {"language_model.encoder.layers.0.input_layernorm.weight", "lm_head.dense.weight"},
                              gpt = {"language_model.encoder.layers.0.input_layernorm.weight"};
  EXPECT_TRUE(bert_formats().megatron.recognizes(bert));
  EXPECT_FALSE(gpt_formats().megatron.recognizes(bert));
  EXPECT_FALSE(bert_formats().megatron.recognizes(gpt));
  EXPECT_TRUE(gpt_formats().megatron.recognizes(gpt));
}

TEST(MegatronBert, ReadsTheNamesOfLaterReleases) {
  const auto name_of = [](const char* path) { return bert_formats().megatron.module_name(path); };
  const std::pair<const char*, const char*> names[] = {
      {"embedding.tokentype_embeddings.weight", "tokentype_embeddings.weight"},
      {"tokentype_embeddings.weight", "tokentype_embeddings.weight"},
      {"encoder.final_layernorm.weight", "final_layernorm.weight"},
      {"encoder.final_norm.bias", "final_layernorm.bias"},
      {"transformer.final_layernorm.bias", "final_layernorm.bias"},
      {"lm_head.layernorm.weight", "lm_head.layernorm.weight"},
      {"lm_head.norm.weight", "lm_head.layernorm.weight"},
      {"lm_head.layer_norm.bias", "lm_head.layernorm.bias"},
      {"lm_head.bias", "lm_head.bias"},
      {"output_layer.bias", "lm_head.bias"},
      {"pooler.dense.weight", "pooler.dense.weight"},
      {"binary_head.bias", "binary_head.bias"}};
  for (const auto& [theirs, ours] : names) {
    EXPECT_EQ(name_of(theirs).name, ours) << theirs;
    EXPECT_EQ(name_of(theirs).layer, -1) << theirs;
    EXPECT_FALSE(name_of(theirs).is_copy) << theirs;
  }
  for (const char* copy : {"word_embeddings_for_head.weight", "output_layer.weight"}) {
    EXPECT_EQ(name_of(copy).name, "word_embeddings.weight");
    EXPECT_TRUE(name_of(copy).is_copy);
  }
  const ModuleName layer = name_of("encoder.layers.11.self_attention.linear_qkv.layer_norm_weight");
  EXPECT_EQ(layer.stack, "layers");
  EXPECT_EQ(layer.layer, 11);
  EXPECT_EQ(layer.name, "input_layernorm.weight");
}

}  // namespace
}  // namespace espalier::convert::megatron_bert_test
