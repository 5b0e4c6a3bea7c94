#include "models/gpt/model.h"

#include <gtest/gtest.h>

namespace espalier::models {
namespace {

families::GptConfig small_config() {
  families::GptConfig config;
  config.num_layers = 3;
  config.hidden_size = 24;
  config.ffn_hidden_size = 40;
  config.num_attention_heads = 3;
  config.kv_channels = 8;
  config.max_position_embeddings = 17;
  config.vocab_size = 29;
  config.padded_vocab_size = 33;
  return config;
}

std::vector<std::string> visited_names(const families::GptConfig& config) {
  tensor::ParamSet params(families::gpt_params(config), {}, at::kFloat, true);
  GptModel model(nn::LayerBuilder{params, dist::single_process()}, config, {{}, 1});
  std::vector<std::string> names;
  tensor::ParamVisitor visitor([&](const std::string& name, tensor::Param& param) {
    EXPECT_EQ(name, param.spec->name);
    names.push_back(name);
  });
  model.visit(visitor);
  return names;
}

TEST(GptModel, VisitsExactlyTheParametersOfItsSpecListInOrder) {
  for (const bool bloom : {false, true})
    for (const bool tied : {false, true}) {
      families::GptConfig config = small_config();
      config.position_embedding = bloom ? families::PositionEmbedding::kAlibi : families::PositionEmbedding::kLearned;
      config.embed_layernorm = bloom;
      config.tie_output = tied;
      std::vector<std::string> expected;
      for (const spec::ParamSpec& spec : families::gpt_params(config)) expected.push_back(spec.name);
      EXPECT_EQ(visited_names(config), expected) << "bloom " << bloom << " tied " << tied;
    }
}

TEST(GptModel, VisitsExactlyTheParametersOfALlama) {
  for (const bool head_norms : {false, true})
    for (const bool qkv_bias : {false, true}) {
      families::GptConfig config = small_config();
      config.num_query_groups = 1;
      config.position_embedding = families::PositionEmbedding::kRotary;
      config.normalization = spec::Normalization::kRmsNorm;
      config.activation = spec::Activation::kSwiglu;
      config.add_bias_linear = false;
      config.add_qkv_bias = qkv_bias;
      config.qk_layernorm = head_norms;
      config.tie_output = false;
      std::vector<std::string> expected;
      for (const spec::ParamSpec& spec : families::gpt_params(config)) expected.push_back(spec.name);
      EXPECT_EQ(visited_names(config), expected) << "head norms " << head_norms << " bias " << qkv_bias;
    }
}

}  // namespace
}  // namespace espalier::models
