#include "plan/flops.h"

#include <gtest/gtest.h>

#include "families/gpt/config.h"
#include "plan/partition.h"

namespace espalier::families {
namespace {

GptConfig shape(int64_t layers, int64_t hidden, int64_t heads, int64_t vocab) {
  GptConfig model;
  model.num_layers = layers;
  model.hidden_size = hidden;
  model.ffn_hidden_size = 4 * hidden;
  model.num_attention_heads = heads;
  model.kv_channels = hidden / heads;
  model.padded_vocab_size = vocab;
  return model;
}

GptConfig bloom(int64_t layers, int64_t hidden, int64_t heads) {
  GptConfig model = shape(layers, hidden, heads, 250880);
  model.embed_layernorm = true;
  model.position_embedding = PositionEmbedding::kAlibi;
  return model;
}

TEST(Flops, ParameterCountsAreThePublishedOnes) {
  EXPECT_EQ(gpt_model_spec(bloom(70, 14336, 112), 1).num_parameters(), 176247271424);  // bigscience/bloom
  EXPECT_EQ(gpt_model_spec(bloom(24, 1024, 16), 1).num_parameters(), 559214592);       // bigscience/bloom-560m
  GptConfig gpt2 = shape(12, 768, 12, 50257);
  gpt2.max_position_embeddings = 1024;
  EXPECT_EQ(gpt_model_spec(gpt2, 1).num_parameters(), 124439808);  // openai-community/gpt2
  EXPECT_EQ(gpt_model_spec(gpt2, 1).num_parameters_without_embeddings(), 124439808 - (50257 + 1024) * 768);
}

TEST(Flops, ModelFlopsAreTheMultiplyAddsOfAPlainWalk) {
  GptConfig model = shape(3, 10, 2, 33);
  model.ffn_hidden_size = 7;
  model.kv_channels = 4;  // projections are 8 wide, not 10
  const int64_t length = 5;
  int64_t multiply_adds = 0;
  for (int64_t position = 0; position < length; ++position) {
    for (int64_t layer = 0; layer < 3; ++layer) {
      multiply_adds += 3 * (10 * 8) + 8 * 10 + 10 * 7 + 7 * 10;
      for (int64_t key = 0; key <= position; ++key) multiply_adds += 2 * (2 * 4);  // scores and values, two heads
    }
    multiply_adds += 10 * 33;
  }
  EXPECT_EQ(plan::model_flops(gpt_model_spec(model, length)), static_cast<double>(3 * 2 * multiply_adds));
}

TEST(Flops, GroupsGatesAndWindowsCostWhatAPlainWalkCounts) {
  GptConfig model = shape(2, 10, 6, 33);
  model.ffn_hidden_size = 7;
  model.kv_channels = 4;
  model.num_query_groups = 2;
  model.activation = spec::Activation::kReglu;
  for (const int64_t window : {1, 3, 7}) {
    model.window_size = window;
    const int64_t length = 5;
    int64_t multiply_adds = 0;
    for (int64_t position = 0; position < length; ++position) {
      for (int64_t layer = 0; layer < 2; ++layer) {
        multiply_adds += 10 * (6 * 4) + 2 * (10 * 2 * 4) + 6 * 4 * 10 + 3 * (10 * 7);
        for (int64_t key = 0; key <= position; ++key)
          if (key > position - window) multiply_adds += 2 * (6 * 4);
      }
      multiply_adds += 10 * 33;
    }
    EXPECT_EQ(plan::model_flops(gpt_model_spec(model, length)), static_cast<double>(3 * 2 * multiply_adds))
        << "window " << window;
  }
}

TEST(Flops, HardwareFlopsAreThoseOfBloomsLog) {
  // megatron/utils.py by hand for the 176B model: 24 * 4 * s * l * h^2 = 2.82857e15, times 1 + s/6h + V/16lh.
  const double expected = 96.0 * 2048 * 70 * 14336.0 * 14336.0 * (1 + 2048 / 86016.0 + 250880 / 16056320.0);
  EXPECT_DOUBLE_EQ(plan::hardware_flops(gpt_model_spec(bloom(70, 14336, 112), 2048), 70), expected);
  EXPECT_DOUBLE_EQ(plan::hardware_flops(gpt_model_spec(bloom(70, 14336, 112), 2048), 0), expected * 3 / 4);
  EXPECT_DOUBLE_EQ(plan::hardware_flops(gpt_model_spec(bloom(70, 14336, 112), 2048), 35), expected * 3.5 / 4);
}

TEST(Partition, WeighsEveryPartOfTheModel) {
  GptConfig model{.num_layers = 3, .hidden_size = 8, .ffn_hidden_size = 32, .num_attention_heads = 2};
  model.kv_channels = 4;
  model.max_position_embeddings = 5;
  model.padded_vocab_size = 11;
  const plan::PartWeights weights = plan::part_weights(gpt_model_spec(model, 5));
  EXPECT_EQ(weights.embedding, 11 * 8 + 5 * 8);
  EXPECT_EQ(weights.layer, 12 * 8 * 8 + 13 * 8);
  EXPECT_EQ(weights.final_norm, 2 * 8);
  EXPECT_EQ(weights.output, 11 * 8) << "the tied embedding";
}

}  // namespace
}  // namespace espalier::families
