// The maps of all families: every element of both sides occurs once. (That they are the right elements is compared
// with transformers in tests/golden/hf_folders_test.cpp.)
#include "convert/hf/tensors.h"

#include <gtest/gtest.h>

namespace espalier::convert::hf_tensors_test {
namespace {

families::GptConfig config_of(HfFamily family) {
  const bool is_old = !is_llama_like(family), is_llama = family == HfFamily::kLlama;
  families::GptConfig config;
  config.num_layers = 2;
  config.num_attention_heads = is_old ? 3 : 9;
  config.num_query_groups = 3;
  config.kv_channels = is_old ? 5 : 2;
  config.hidden_size = is_old ? 15 : 18;
  config.ffn_hidden_size = family == HfFamily::kBloom ? 60 : 23;
  config.max_position_embeddings = 7;
  config.vocab_size = 31, config.padded_vocab_size = 40;
  config.tie_output = is_old;
  if (family == HfFamily::kBloom)
    config.position_embedding = families::PositionEmbedding::kAlibi, config.embed_layernorm = true;
  if (is_old) return config;
  config.position_embedding = families::PositionEmbedding::kRotary;
  config.normalization = spec::Normalization::kRmsNorm;
  config.activation = spec::Activation::kSwiglu;
  config.add_bias_linear = is_llama;
  config.add_qkv_bias = family == HfFamily::kQwen2;
  config.qk_layernorm = family == HfFamily::kQwen3;
  return config;
}

using Counts = std::vector<std::vector<int>>;

Counts zeros(const TensorList& tensors) {
  Counts counts;
  for (const TensorShape& tensor : tensors) counts.emplace_back(static_cast<size_t>(tensor.num_elements()), 0);
  return counts;
}

void count(const Place& place, const std::vector<int64_t>& sizes, size_t axis, int64_t offset, Counts& counts) {
  if (axis == sizes.size()) {
    ++counts.at(place.tensor).at(static_cast<size_t>(offset));
    return;
  }
  for (int64_t i = 0; i < sizes[axis]; ++i) count(place, sizes, axis + 1, offset + i * place.strides[axis], counts);
}

void expect_ones(const Counts& counts, const TensorList& tensors) {
  for (size_t number = 0; number < counts.size(); ++number)
    for (const int found : counts[number]) ASSERT_EQ(found, 1) << tensors[number].name;
}

TEST(HfTensors, EveryElementOfBothSidesIsThereOnce) {
  for (const HfFamilyNames& names : hf_families())
    for (const bool stores_head : {false, true}) {
      const families::GptConfig config = config_of(names.family);
      if (!config.tie_output && !stores_head) continue;
      ASSERT_TRUE(obstacles(names.family, config).empty()) << names.model_type;
      const TensorMap map = hf_tensor_map(names.family, config, {.vocab_rows = 31, .stores_head = stores_head});
      Counts ours = zeros(map.ours), theirs = zeros(map.theirs);
      for (const Piece& piece : map.pieces) {
        if (!piece.is_copy) count(piece.ours, piece.sizes, 0, piece.ours.offset, ours);
        count(piece.theirs, piece.sizes, 0, piece.theirs.offset, theirs);
      }
      for (const Padding& padding : map.our_padding)
        for (int64_t i = 0; i < padding.count; ++i)
          ++ours.at(padding.tensor).at(static_cast<size_t>(padding.begin + i));
      expect_ones(ours, map.ours);
      expect_ones(theirs, map.theirs);
      EXPECT_EQ(map.our_padding[0].count, 9 * config.hidden_size);
    }
}

TEST(HfTensors, KnowsHowAFolderIsLaidOut) {
  EXPECT_FALSE(layout_of({"wte.weight"}, HfFamily::kGpt2, 7).has_prefix);
  EXPECT_TRUE(layout_of({"transformer.wte.weight"}, HfFamily::kGpt2, 7).has_prefix);
  EXPECT_TRUE(layout_of({"model.embed_tokens.weight", "lm_head.weight"}, HfFamily::kLlama, 7).stores_head);
  EXPECT_TRUE(is_buffer("h.0.attn.bias") && is_buffer("model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(is_buffer("h.0.attn.c_attn.bias"));
}

}  // namespace
}  // namespace espalier::convert::hf_tensors_test
