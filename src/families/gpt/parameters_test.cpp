#include "families/gpt/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace espalier::families {
namespace {

using spec::Activation;
using spec::Init;
using spec::Normalization;
using spec::num_elements;
using spec::padded_vocab_size;
using spec::ParamSpec;
using spec::Placement;

GptConfig config_of(int64_t layers, int64_t hidden, int64_t heads, int64_t vocabulary) {
  GptConfig config;
  config.num_layers = layers;
  config.hidden_size = hidden;
  config.ffn_hidden_size = 4 * hidden;
  config.num_attention_heads = heads;
  config.kv_channels = hidden / heads;
  config.max_position_embeddings = 1024;
  config.vocab_size = config.padded_vocab_size = vocabulary;
  return config;
}

// Published sizes: GPT-2 small has 124,439,808 parameters, BLOOM-560M 559,214,592.
TEST(GptParams, CountsAreThePublishedOnes) {
  EXPECT_EQ(num_elements(gpt_params(config_of(12, 768, 12, 50257))), 124439808);
  GptConfig bloom = config_of(24, 1024, 16, 250880);
  bloom.position_embedding = PositionEmbedding::kAlibi;
  bloom.embed_layernorm = true;
  EXPECT_EQ(num_elements(gpt_params(bloom)), 559214592);
}

TEST(GptParams, OfMupAreThoseOfTheBaseWithSmallerDeviationsInLayers) {
  GptConfig config = config_of(2, 48, 6, 33);
  config.init_method_std = 0.3;
  const std::vector<ParamSpec> standard = gpt_params(config);
  config.mup = {.mup = true, .mup_base_hidden_size = 12};
  const std::vector<ParamSpec> wide = gpt_params(config);
  ASSERT_EQ(wide.size(), standard.size());
  for (size_t at = 0; at < wide.size(); ++at) {
    SCOPED_TRACE(wide[at].name);
    const bool is_matrix_of_layer = wide[at].name.starts_with("layers.") && wide[at].shape.size() == 2;
    EXPECT_EQ(wide[at].width, 4);
    EXPECT_EQ(standard[at].width, 1);
    EXPECT_NEAR(wide[at].init.value, standard[at].init.value / (is_matrix_of_layer ? 2 : 1), 1e-15);
  }
}

GptConfig llama_config() {
  GptConfig config = config_of(2, 24, 6, 33);
  config.num_query_groups = 2;
  config.ffn_hidden_size = 20;
  config.position_embedding = PositionEmbedding::kRotary;
  config.normalization = Normalization::kRmsNorm;
  config.activation = Activation::kSwiglu;
  config.add_bias_linear = false;
  config.tie_output = false;
  return config;
}

// Published: Llama 3.1 8B has 8,030,261,248 parameters, Mistral 7B v0.1 7,241,732,096, Qwen2 0.5B 494,032,768 (tied),
// Qwen3 0.6B 596,049,920 (tied, heads of 128).
TEST(GptParams, CountsOfLlamaAndItsLikeAreThePublishedOnes) {
  GptConfig config = llama_config();
  const auto count = [&](int64_t layers, int64_t hidden, int64_t ffn, int64_t heads, int64_t groups, int64_t head_size,
                         int64_t vocabulary) {
    config.num_layers = layers;
    config.hidden_size = hidden;
    config.ffn_hidden_size = ffn;
    config.num_attention_heads = heads;
    config.num_query_groups = groups;
    config.kv_channels = head_size;
    config.padded_vocab_size = vocabulary;
    return num_elements(gpt_params(config));
  };
  EXPECT_EQ(count(32, 4096, 14336, 32, 8, 128, 128256), 8030261248);
  EXPECT_EQ(count(32, 4096, 14336, 32, 8, 128, 32000), 7241732096);
  config.tie_output = true;
  config.qk_layernorm = true;
  EXPECT_EQ(count(28, 1024, 3072, 16, 8, 128, 151936), 596049920);
  config.qk_layernorm = false;
  config.add_qkv_bias = true;
  EXPECT_EQ(count(24, 896, 4864, 14, 2, 64, 151936), 494032768);
}

TEST(GptParams, GroupsAndGatesSplitInWholeUnits) {
  GptConfig config = llama_config();
  config.qk_layernorm = true;
  std::map<std::string, ParamSpec> specs;
  for (const ParamSpec& spec : gpt_params(config)) specs[spec.name] = spec;
  const ParamSpec& qkv = specs.at("layers.1.self_attention.query_key_value.weight");
  EXPECT_EQ(qkv.shape, (std::vector<int64_t>{40, 24}));  // 2 groups of (3 + 2) heads of 4
  EXPECT_EQ(qkv.tensor_placement.unit, 20);
  EXPECT_EQ(specs.at("layers.1.self_attention.dense.weight").tensor_placement.unit, 12);  // the queries of a group
  EXPECT_EQ(specs.at("layers.0.self_attention.key_norm.weight").shape, (std::vector<int64_t>{4}));
  EXPECT_EQ(specs.at("layers.0.mlp.dense_h_to_4h.weight").shape, (std::vector<int64_t>{40, 24}));
  EXPECT_EQ(specs.at("layers.0.mlp.dense_h_to_4h.weight").tensor_placement.segments, (std::vector<int64_t>{20, 20}));
  EXPECT_FALSE(specs.contains("layers.0.self_attention.query_key_value.bias"));
  EXPECT_FALSE(specs.contains("final_layernorm.bias"));
  EXPECT_FALSE(specs.contains("position_embeddings.weight"));
}

TEST(GptParams, MatricesDecayAndOutputLayersAreDrawnNarrower) {
  GptConfig config = config_of(8, 24, 3, 33);
  config.init_method_std = 0.5;
  config.tie_output = false;
  for (const ParamSpec& spec : gpt_params(config)) {
    EXPECT_EQ(spec.weight_decay, spec.shape.size() == 2) << spec.name;
    const bool output =
        spec.name.ends_with("self_attention.dense.weight") || spec.name.ends_with("dense_4h_to_h.weight");
    if (spec.shape.size() == 2) {
      EXPECT_DOUBLE_EQ(spec.init.value, output ? 0.5 / 4 : 0.5) << spec.name;  // sqrt(2 * 8) = 4
    }
  }
}

std::vector<int64_t> rows_of(const spec::MatrixRows& matrix) {
  std::vector<int64_t> rows;
  for (int64_t time = 0; time < matrix.times; ++time)
    for (int64_t row = 0; row < matrix.count; ++row) rows.push_back(matrix.first + time * matrix.stride + row);
  return rows;
}

// What Muon takes for matrices: of groups of three queries, a key and a value of 4 channels each, all queries.
TEST(GptParams, WeightsOfLayersConsistOfMatrices) {
  for (const ParamSpec& spec : gpt_params(llama_config())) {
    SCOPED_TRACE(spec.name);
    EXPECT_EQ(!spec.matrices.empty(), spec.name.starts_with("layers.") && spec.shape.size() == 2);
    std::vector<int> count(static_cast<size_t>(spec.shape[0]));
    for (const spec::MatrixRows& matrix : spec.matrices)
      for (const int64_t row : rows_of(matrix)) ++count.at(static_cast<size_t>(row));
    for (const int times : count) EXPECT_EQ(times, spec.matrices.empty() ? 0 : 1);
    if (!spec.name.ends_with("query_key_value.weight")) continue;
    ASSERT_EQ(spec.matrices.size(), 3u);
    std::vector<int64_t> queries;
    for (const int64_t group : {0, 20})
      for (int64_t row = 0; row < 12; ++row) queries.push_back(group + row);
    EXPECT_EQ(rows_of(spec.matrices[0]), queries);
    EXPECT_EQ(rows_of(spec.matrices[1]), (std::vector<int64_t>{12, 13, 14, 15, 32, 33, 34, 35}));
    EXPECT_EQ(rows_of(spec.matrices[2]), (std::vector<int64_t>{16, 17, 18, 19, 36, 37, 38, 39}));
  }
}

TEST(GptParams, SplitSegmentsCoverTheirDimensionInWholeUnits) {
  for (const ParamSpec& spec : gpt_params(config_of(2, 24, 3, 33))) {
    const Placement& placement = spec.tensor_placement;
    if (placement.kind == Placement::Kind::kReplicated) continue;
    int64_t covered = 0;
    for (const int64_t segment : placement.segments) {
      EXPECT_EQ(segment % placement.unit, 0) << spec.name;
      covered += segment;
    }
    EXPECT_EQ(covered, spec.shape[static_cast<size_t>(placement.dim)]) << spec.name;
  }
}

TEST(GptParams, FileGroupsFollowTheDepth) {
  std::map<std::string, std::string> groups;
  for (const ParamSpec& spec : gpt_params(config_of(2, 24, 3, 33)))
    groups[spec.name] = spec::stack_depth_name(spec.depth, 2);
  EXPECT_EQ(groups.at("word_embeddings.weight"), "embedding");
  EXPECT_EQ(groups.at("layers.0.mlp.dense_4h_to_h.bias"), "00000");
  EXPECT_EQ(groups.at("layers.1.input_layernorm.weight"), "00001");
  EXPECT_EQ(groups.at("final_layernorm.bias"), "final");
}

TEST(PaddedVocabSize, RoundsUpToMegatronsMultiple) {
  EXPECT_EQ(padded_vocab_size(50257, 128, 1), 50304);
  EXPECT_EQ(padded_vocab_size(50257, 128, 8), 51200);
  EXPECT_EQ(padded_vocab_size(5120, 128, 1), 5120);
  EXPECT_EQ(padded_vocab_size(1, 1, 1), 1);
}

}  // namespace
}  // namespace espalier::families
