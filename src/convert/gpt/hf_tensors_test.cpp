// The maps of all kinds of GPTs: every element of both sides occurs once. (That they are the right elements is compared
// with transformers in tests/golden/hf_folders_test.cpp.)
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "convert/formats.h"
#include "families/gpt/config.h"

namespace espalier::convert::hf_tensors_test {
namespace {

families::GptConfig config_of(const std::string& type) {
  const bool is_old = type == "gpt2" || type == "bloom", is_llama = type == "llama";
  families::GptConfig config;
  config.num_layers = 2;
  config.num_attention_heads = is_old ? 3 : 9;
  config.num_query_groups = 3;
  config.kv_channels = is_old ? 5 : 2;
  config.hidden_size = is_old ? 15 : 18;
  config.ffn_hidden_size = type == "bloom" ? 60 : 23;
  config.max_position_embeddings = 7;
  config.vocab_size = 31, config.padded_vocab_size = 40;
  config.tie_output = is_old;
  if (type == "bloom") config.position_embedding = families::PositionEmbedding::kAlibi, config.embed_layernorm = true;
  if (is_old) return config;
  config.position_embedding = families::PositionEmbedding::kRotary;
  config.normalization = spec::Normalization::kRmsNorm;
  config.activation = spec::Activation::kSwiglu;
  config.add_bias_linear = is_llama;
  config.add_qkv_bias = type == "qwen2";
  config.qk_layernorm = type == "qwen3";
  return config;
}

ModelConfig model_with(const families::GptConfig& config) {
  return {.family = &families::gpt_family(),
          .settings = config::FamilyConfig(families::gpt_settings(config)),
          .vocabulary = {config.vocab_size, config.padded_vocab_size},
          .longest_sequence = 7};
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
  for (const std::string& type : hf_model_types())
    for (const bool stores_head : {false, true}) {
      const HfCodec& codec = *find_hf_codec(type);
      if (codec.family != &families::gpt_family()) continue;
      const families::GptConfig config = config_of(type);
      if (!config.tie_output && !stores_head) continue;
      ASSERT_TRUE(codec.obstacles(model_with(config)).empty()) << type;
      const std::set<std::string> names = {"lm_head.weight"};
      const TensorMap map = codec.map(model_with(config), {.vocab_rows = 31, .names = stores_head ? &names : nullptr});
      EXPECT_EQ(map.theirs.has("lm_head.weight"), stores_head);
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
  const HfCodec& gpt2 = *find_hf_codec("gpt2");
  const ModelConfig model = model_with(config_of("gpt2"));
  const std::set<std::string> bare = {"wte.weight"}, whole = {"transformer.wte.weight"};
  EXPECT_TRUE(gpt2.map(model, {.vocab_rows = 31, .names = &bare}).theirs.has("h.1.ln_2.bias"));
  EXPECT_TRUE(gpt2.map(model, {.vocab_rows = 31, .names = &whole}).theirs.has("transformer.h.1.ln_2.bias"));
  EXPECT_TRUE(gpt2.leaves_out("h.0.attn.bias", model));
  EXPECT_TRUE(find_hf_codec("llama")->leaves_out("model.layers.0.self_attn.rotary_emb.inv_freq", model));
  EXPECT_FALSE(gpt2.leaves_out("h.0.attn.c_attn.bias", model));
}

}  // namespace
}  // namespace espalier::convert::hf_tensors_test
