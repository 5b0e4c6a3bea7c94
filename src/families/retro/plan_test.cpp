// What is planned for a Retro, beside closed forms and a plain walk: its parameters and FLOPs.
#include <gtest/gtest.h>

#include <cmath>

#include "families/retro/config.h"

namespace espalier::families {
namespace retro_plan_test {

RetroConfig small_retro(int64_t layers) {
  RetroConfig model;
  GptConfig& gpt = model.gpt;
  gpt.num_layers = layers;
  gpt.hidden_size = 10;
  gpt.ffn_hidden_size = 7;
  gpt.num_attention_heads = 2;
  gpt.kv_channels = 4;  // projections are 8 wide, not 10
  gpt.max_position_embeddings = 40;
  gpt.padded_vocab_size = 33;
  model.retrieves = true;
  model.encoder_layers = 3;
  model.chunk_length = 4;
  model.num_neighbors = 3;
  model.num_retrieved_chunks = 2;
  return model;
}

std::vector<int64_t> layers_that_retrieve(int64_t layers) {
  std::vector<int64_t> all;
  for (int64_t layer = 0; layer < layers; ++layer)
    if (small_retro(layers).retrieves_in(layer)) all.push_back(layer + 1);
  return all;
}

// Upstream counts from 1.
TEST(RetroShape, RetrievesInEveryThirdLayerFromTheSixthOrTheNinthOn) {
  EXPECT_EQ(layers_that_retrieve(5), std::vector<int64_t>());
  EXPECT_EQ(layers_that_retrieve(12), (std::vector<int64_t>{6, 9, 12}));
  EXPECT_EQ(layers_that_retrieve(15), (std::vector<int64_t>{6, 9, 12, 15}));
  EXPECT_EQ(layers_that_retrieve(16), (std::vector<int64_t>{9, 12, 15}));
  EXPECT_EQ(layers_that_retrieve(24), (std::vector<int64_t>{9, 12, 15, 18, 21, 24}));
}

TEST(RetroParams, AreThoseOfTheGptAndOfRetrieval) {
  const RetroConfig model = small_retro(9);
  const int64_t h = 10, p = 8, plain = 4 * h * p + 3 * p + h + 2 * h * 7 + 7 + h + 4 * h;
  const int64_t cross = 4 * h * p + 3 * p + h + 2 * h;  // three projections, the result's, a norm
  EXPECT_EQ(spec::num_elements(retro_params(model)), 9 * plain + 2 * cross + 3 * plain + cross + (33 + 40) * h + 2 * h);
  EXPECT_EQ(spec::num_elements(gpt_params(model.gpt)), 9 * plain + (33 + 40) * h + 2 * h);
  // Of the encoder: at the depth of the layer that owns it, and scaled by the layers of the GPT, as upstream.
  for (const spec::ParamSpec& param : retro_params(model)) {
    if (param.name == "layers.5.retriever.layers.1.mlp.dense_4h_to_h.weight") {
      EXPECT_EQ(param.depth, 6);
      EXPECT_DOUBLE_EQ(param.init.value, 0.02 / std::sqrt(18.0));
    }
  }
}

// Multiply-adds, token by token and pair by pair.
TEST(RetroFlops, AreTheMultiplyAddsOfAPlainWalk) {
  const RetroConfig model = small_retro(9);
  const int64_t s = 12, chunks = 3, pair = 2 * 8, projection = 10 * 8, mlp = 2 * 10 * 7, retrieved = 8;
  int64_t products = 0;
  for (int64_t layer = 0; layer < 9; ++layer)
    for (int64_t token = 0; token < s; ++token) products += 4 * projection + mlp + (token + 1) * pair;
  for (int64_t layer = 0; layer < 2; ++layer)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      products += 3 * retrieved * 2 * projection;               // keys and values
      products += 4 * (2 * projection + 3 * retrieved * pair);  // queries, results and pairs
    }
  for (int64_t neighbor = 0; neighbor < chunks * 3; ++neighbor) {
    products += 3 * retrieved * (4 * projection + mlp + retrieved * pair);
    products += retrieved * (2 * projection + 4 * pair) + 4 * 2 * projection;  // the first layer reads the chunk
  }
  products += s * 10 * 33;
  double flops = 0;
  for (const spec::Depth& depth : retro_model_spec(model, s, {}).depths) flops += depth.forward_flops;
  EXPECT_DOUBLE_EQ(flops, 2.0 * static_cast<double>(products));
}

TEST(RetroModelSpec, WithoutARetrieverIsAGpt) {
  RetroConfig model = small_retro(9);
  model.retrieves = false;
  const spec::ModelSpec retro = retro_model_spec(model, 12, {}), gpt = gpt_model_spec(model.gpt, 12, {});
  EXPECT_EQ(retro.family, "retro");
  ASSERT_EQ(retro.params.size(), gpt.params.size());
  for (size_t at = 0; at < gpt.params.size(); ++at) EXPECT_EQ(retro.params[at].name, gpt.params[at].name);
}

}  // namespace retro_plan_test
}  // namespace espalier::families
