// config.json of published models, as their authors wrote them; what is refused, by name; and back again.
#include "convert/hf/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "convert/formats.h"
#include "families/gpt/config.h"
#include "families/registry.h"

namespace espalier::convert::hf_config_test {
namespace {

using Json = nlohmann::json;
using spec::Activation;
using Kind = spec::RopeScaling::Kind;

constexpr const char* kGpt2 = R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
  "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null, "summary_type": "cls_index",
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})";
constexpr const char* kBloom = R"({"apply_residual_connection_post_layernorm": false, "attention_dropout": 0.0,
  "architectures": ["BloomForCausalLM"], "bias_dropout_fusion": true, "bos_token_id": 1, "eos_token_id": 2,
  "pad_token_id": 3, "unk_token_id": 0, "hidden_dropout": 0.0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
  "masked_softmax_fusion": true, "model_type": "bloom", "n_embed": 1024, "n_inner": null, "n_layer": 24,
  "num_attention_heads": 16, "offset_alibi": 100, "pretraining_tp": 1, "seq_length": 2048, "skip_bias_add": true,
  "skip_bias_add_qkv": false, "transformers_version": "4.20.0", "use_cache": true, "vocab_size": 250880})";
constexpr const char* kLlama31 = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
  "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256})";
constexpr const char* kMistral = R"({"architectures": ["MistralForCausalLM"], "hidden_act": "silu",
  "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "vocab_size": 32000})";
constexpr const char* kQwen2 = R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
  "hidden_act": "silu", "hidden_size": 896, "intermediate_size": 4864, "max_position_embeddings": 131072,
  "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 151936})";
constexpr const char* kPhi3Mini128k = R"({"architectures": ["Phi3ForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "embd_pdrop": 0.0, "hidden_act": "silu", "hidden_size": 12, "intermediate_size": 8192,
  "max_position_embeddings": 131072, "model_type": "phi3", "num_attention_heads": 2, "num_hidden_layers": 32,
  "num_key_value_heads": 2, "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0,
  "rms_norm_eps": 1e-05, "rope_scaling": {"long_factor": [1.08, 1.1, 64.2], "short_factor": [1.0, 1.02, 1.1],
  "type": "su"}, "rope_theta": 10000.0, "sliding_window": 262144, "torch_dtype": "bfloat16", "vocab_size": 32064})";

HfModel read(const std::string& text) { return read_hf_config(text, "config.json", {}); }
families::GptConfig gpt(const HfModel& model) {
  return families::gpt_config(model.config.settings, model.config.vocabulary);
}

// `text` with some keys changed; null removes one.
std::string with(const char* text, const Json& changes) {
  Json json = Json::parse(text);
  for (const auto& [key, value] : changes.items())
    if (value == "(absent)")
      json.erase(key);
    else
      json[key] = value;
  return json.dump();
}

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadData);
    return error.what();
  }
  return "no error";
}

TEST(HfConfig, ReadsTheConfigurationOfGpt2) {
  const HfModel model = read(kGpt2);
  EXPECT_STREQ(model.codec->model_type, "gpt2");
  const families::GptConfig config = gpt(model);
  EXPECT_EQ(config.num_layers, 12);
  EXPECT_EQ(config.ffn_hidden_size, 3072);
  EXPECT_EQ(config.kv_channels, 64);
  EXPECT_EQ(config.max_position_embeddings, 1024);
  EXPECT_EQ(config.vocab_size, 50257);
  EXPECT_TRUE(config.tie_output);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_EQ(config.hidden_dropout, 0.1);
  EXPECT_TRUE(model.notes.empty()) << model.notes[0];
}

TEST(HfConfig, ReadsTheConfigurationOfBloomWithItsOldKeys) {
  const HfModel model = read(kBloom);
  EXPECT_EQ(gpt(model).hidden_size, 1024);
  EXPECT_EQ(gpt(model).ffn_hidden_size, 4096);
  EXPECT_EQ(gpt(model).num_attention_heads, 16);
  EXPECT_EQ(gpt(model).position_embedding, families::PositionEmbedding::kAlibi);
  EXPECT_TRUE(gpt(model).embed_layernorm);
  EXPECT_TRUE(model.notes.empty()) << model.notes[0];
}

TEST(HfConfig, ReadsTheConfigurationOfLlama31) {
  const HfModel model = read(kLlama31);
  const families::GptConfig config = gpt(model);
  EXPECT_EQ(config.num_query_groups, 8);
  EXPECT_EQ(config.kv_channels, 128);
  EXPECT_EQ(config.normalization, spec::Normalization::kRmsNorm);
  EXPECT_EQ(config.activation, Activation::kSwiglu);
  EXPECT_EQ(config.rotary_base, 500000);
  EXPECT_EQ(config.rope_scaling.kind, Kind::kLlama3);
  EXPECT_EQ(config.rope_scaling.factor, 8);
  EXPECT_EQ(config.rope_scaling.original_max_position_embeddings, 8192);
  EXPECT_FALSE(config.tie_output || config.add_bias_linear || config.add_qkv_bias);
  EXPECT_EQ(model.dtype, store::DType::kBFloat16);
}

TEST(HfConfig, ReadsWindowsBiasesAndTiesOfTheOthers) {
  EXPECT_EQ(gpt(read(kMistral)).window_size, 4096);
  EXPECT_EQ(gpt(read(with(kMistral, {{"sliding_window", nullptr}}))).window_size, 0);
  EXPECT_EQ(gpt(read(with(kMistral, {{"num_key_value_heads", nullptr}}))).num_query_groups, 32);
  const families::GptConfig qwen = gpt(read(kQwen2));
  EXPECT_TRUE(qwen.add_qkv_bias && !qwen.add_bias_linear && qwen.tie_output);
  EXPECT_EQ(qwen.window_size, 0);
  const Json all = {{"use_sliding_window", true}, {"max_window_layers", 0}, {"sliding_window", 7}};
  EXPECT_EQ(gpt(read(with(kQwen2, all))).window_size, 7);
  // Of the 24 layers the first 24 would see all.
  EXPECT_EQ(gpt(read(with(kQwen2, {{"use_sliding_window", true}}))).window_size, 0);
  EXPECT_EQ(gpt(read(with(kQwen2, {{"head_dim", 32}}))).kv_channels, 32);
}

TEST(HfConfig, ReadsLongropeUnderItsFirstName) {
  const families::GptConfig config = gpt(read(kPhi3Mini128k));
  EXPECT_EQ(config.rope_scaling.kind, Kind::kLongRope);
  EXPECT_EQ(config.rope_scaling.factor, 32);
  EXPECT_EQ(config.rope_scaling.long_factors, (std::vector<double>{1.08, 1.1, 64.2}));
  EXPECT_EQ(config.rope_scaling.original_max_position_embeddings, 4096);
}

TEST(HfConfig, TakesTransformers5sRopeParameters) {
  const Json now = {
      {"rope_scaling", "(absent)"},
      {"rope_theta", "(absent)"},
      {"rope_parameters",
       {{"rope_type", "yarn"}, {"rope_theta", 2e6}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}}}};
  const families::GptConfig config = gpt(read(with(kLlama31, now)));
  EXPECT_EQ(config.rope_scaling.kind, Kind::kYarn);
  EXPECT_EQ(config.rotary_base, 2e6);
  EXPECT_EQ(config.rope_scaling.factor, 4);
  EXPECT_EQ(config.rope_scaling.beta_fast, 32);
}

TEST(HfConfig, SaysNothingOfKeysOfPublishedModelsThatChangeNothing) {
  const std::pair<const char*, Json> cases[] = {{kLlama31, {{"rope_interleaved", false}, {"is_llama_config", true}}},
                                                {kMistral, {{"attention_bias", false}, {"mlp_bias", false}}},
                                                {kQwen2, {{"use_mrope", false}}},
                                                {kPhi3Mini128k,
                                                 {{"attention_bias", false},
                                                  {"mlp_bias", false},
                                                  {"lm_head_bias", false},
                                                  {"full_attn_mod", 1},
                                                  {"interpolate_factor", 1}}}};
  for (const auto& [text, more] : cases) {
    const HfModel model = read(with(text, more));
    EXPECT_TRUE(model.notes.empty()) << model.notes[0];
    EXPECT_EQ(gpt(model), gpt(read(text)));
  }
}

TEST(HfConfig, TakesYarnOfFinetunedModels) {
  const Json yarn = {
      {"type", "yarn"}, {"factor", 16.0}, {"original_max_position_embeddings", 4096}, {"finetuned", true}};
  const HfModel model = read(with(kLlama31, {{"rope_scaling", yarn}}));
  EXPECT_TRUE(model.notes.empty()) << model.notes[0];
  EXPECT_EQ(gpt(model).rope_scaling.kind, Kind::kYarn);
  EXPECT_EQ(gpt(model).rope_scaling.factor, 16);
}

TEST(HfConfig, WritesTheFactorOfLongropeWhereTransformersAsksForIt) {
  const Json factors(64, 1.5);  // pairs of the 128 channels of a head
  const Json longrope = {{"rope_type", "longrope"},
                         {"factor", 32.0},
                         {"original_max_position_embeddings", 4096},
                         {"short_factor", factors},
                         {"long_factor", factors}};
  const HfModel llama = read(with(kLlama31, {{"rope_scaling", longrope}}));
  EXPECT_EQ(Json::parse(hf_config_json(llama, "")).at("rope_scaling").at("factor"), 32.0);
  EXPECT_EQ(gpt(read(hf_config_json(llama, ""))), gpt(llama));
  EXPECT_FALSE(Json::parse(hf_config_json(read(kPhi3Mini128k), "")).at("rope_scaling").contains("factor"));
}

TEST(HfConfig, RefusesByNameWhatChangesTheModel) {
  const auto expect = [](const char* text, const Json& change, const std::string& part) {
    ASSERT_FALSE(part.empty());
    const std::string message = refusal(with(text, change));
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(kGpt2, {{"scale_attn_by_inverse_layer_idx", true}},
         "config.json: scale_attn_by_inverse_layer_idx: true is not supported");
  expect(kGpt2, {{"activation_function", "mish"}}, "activation_function: 'mish' is not supported; gelu_new");
  expect(kGpt2, {{"architectures", {"GPT2ForSequenceClassification"}}}, "GPT2ForSequenceClassification");
  expect(kGpt2, {{"pruned_heads", {{"1", {0}}}}}, "pruned_heads");
  expect(kGpt2, {{"n_embd", 770}}, "12 does not divide hidden_size 770");
  expect(kGpt2, {{"n_embd", "(absent)"}}, "n_embd: expected a size, found nothing");
  expect(kGpt2, {{"n_embd", -3}}, "n_embd: expected a size from 1 to 1000000, found -3");
  expect(kGpt2, {{"n_layer", 1.5}}, "n_layer: expected a size");
  expect(kBloom, {{"layer_norm_epsilon", 1e-6}}, "layer_norm_epsilon: 1e-06 is not supported");
  expect(kLlama31, {{"attention_bias", true}}, "attention_bias: true is only supported together");
  expect(kLlama31, {{"rope_interleaved", true}}, "rope_interleaved: true is not supported: rotated pairs");
  expect(kMistral, {{"attention_bias", true}}, "attention_bias: true is not supported");
  expect(kMistral, {{"mlp_bias", true}}, "mlp_bias: true is not supported");
  expect(kPhi3Mini128k, {{"lm_head_bias", true}}, "lm_head_bias: true is not supported: the output layer has no bias");
  expect(kQwen2, {{"use_mrope", true}}, "use_mrope: true is not supported: positions have one dimension here");
  expect(kLlama31, {{"quantization_config", {{"bits", 4}}}}, "quantization_config: is not supported");
  expect(kLlama31, {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}},
         "rope_scaling.rope_type: 'dynamic' is not supported");
  expect(kLlama31, {{"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}, {"truncate", false}}}},
         "rope_scaling.truncate: false");
  expect(kLlama31, {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"twist", 1}}}},
         "rope_scaling.twist: is not known");
  expect(kLlama31, {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor: 0.5 is only known for phi3");
  expect(kLlama31, {{"num_key_value_heads", 7}}, "7 does not divide num_attention_heads 32");
  expect(kQwen2, {{"use_sliding_window", true}, {"max_window_layers", 9}}, "max_window_layers: 9 of 24 layers");
  expect(kQwen2, {{"layer_types", {"sliding_attention", "full_attention"}}},
         "layer_types: only the same for all layers");
  expect(kPhi3Mini128k, {{"rope_scaling", {{"type", "su"}, {"long_factor", {1.0}}, {"short_factor", {1.0, 1.0, 1.0}}}}},
         "rope_scaling.long_factor: expected 3 numbers, one for each pair of rotated channels, found 1");
  EXPECT_EQ(refusal("[1]"), "config.json: expected a JSON object, found array");
  EXPECT_NE(refusal("{").find("config.json: expected JSON; it ends in the middle, after 1 bytes"), std::string::npos);
  EXPECT_NE(refusal(R"({"model_type": "gemma"})").find("model_type: expected gpt2, bloom, llama"), std::string::npos);
  EXPECT_EQ(refusal(R"({"a": )" + std::string(300'000, '[')), "config.json: nested more than 16 deep");
}

TEST(HfConfig, ReportsEveryProblemAtOnceAndSaysWhichKeysItDoesNotKnow) {
  const std::string message = refusal(with(kGpt2, {{"n_layer", 0}, {"n_head", "twelve"}, {"resid_pdrop", 7}}));
  for (const char* key : {"n_layer", "n_head", "resid_pdrop"}) EXPECT_NE(message.find(key), std::string::npos);
  const HfModel model = read(with(kGpt2, {{"my_own_key", 1}}));
  ASSERT_EQ(model.notes.size(), 1u);
  EXPECT_EQ(model.notes[0], "keys that are not known and are assumed to change nothing: my_own_key");
}

TEST(HfConfig, WritesWhatItReads) {
  for (const char* text : {kGpt2, kBloom, kLlama31, kMistral, kQwen2, kPhi3Mini128k}) {
    const HfModel model = read(text);
    EXPECT_TRUE(model.codec->obstacles(model.config).empty());
    for (const std::string base : {"", text}) {
      const HfModel again = read(hf_config_json(model, base));
      EXPECT_EQ(gpt(again), gpt(model)) << hf_config_json(model, base);
      EXPECT_EQ(again.codec, model.codec);
      EXPECT_EQ(again.dtype, model.dtype);
    }
  }
}

TEST(HfConfig, KeepsWhatTheOriginSaidBesideTheModel) {
  HfModel model = read(with(kBloom, {{"my_own_key", "kept"}}));
  model.config.vocabulary.padded_size = 250777;
  const Json json = Json::parse(hf_config_json(model, with(kBloom, {{"my_own_key", "kept"}})));
  EXPECT_EQ(json.at("my_own_key"), "kept");
  EXPECT_EQ(json.at("pad_token_id"), 3);
  EXPECT_EQ(json.at("vocab_size"), 250777);
  EXPECT_EQ(json.at("hidden_size"), 1024);
  EXPECT_FALSE(json.contains("n_embed"));
}

TEST(HfConfig, ChoosesTheFamilyThatCanHoldAModel) {
  for (const char* text : {kGpt2, kBloom, kLlama31, kMistral, kQwen2}) {
    const HfModel model = read(text);
    const HfCodec* bloom = find_hf_codec("bloom");
    EXPECT_EQ(&choose_hf_codec(model.config, nullptr), model.codec);
    EXPECT_EQ(&choose_hf_codec(model.config, bloom) == bloom, model.codec == bloom);
  }
  HfModel model = read(kGpt2);
  model.config.settings.as<families::GptSettings>().shape.embed_layernorm = true;
  try {
    choose_hf_codec(model.config, nullptr);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("gpt2, where no norm follows the embedding"), std::string::npos)
        << error.what();
  }
}

// A recipe that is read before the model's must not change the model: its values are there even where they are the
// defaults.
TEST(ImportedConfig, TheRecipeSaysAllOfTheModel) {
  text::TokenizerOptions tokenizer;
  tokenizer.type = "NullTokenizer", tokenizer.vocab_size = 250879;
  const std::string recipe = model_recipe(read(kGpt2).config, plan::Precision::kFp32, tokenizer);
  for (const char* line : {"layernorm_epsilon = 1e-05", "hidden_dropout = 0.1", "attention_dropout = 0.1",
                           "rotary_percent = 1.0", "embed_layernorm = false", "init_method_std = 0.02"})
    EXPECT_NE(recipe.find(line), std::string::npos) << line << "\n" << recipe;
}

TEST(ImportedConfig, HasTheOptionsThatMakeTheModel) {
  text::TokenizerOptions tokenizer;
  tokenizer.type = "NullTokenizer", tokenizer.vocab_size = 250879;
  for (const char* text : {kGpt2, kBloom}) {
    const HfModel model = read(text);
    const families::GptConfig config = gpt(model);
    store::Manifest manifest;
    manifest.config = imported_config(model.config, model_recipe(model.config, plan::Precision::kBf16, tokenizer));
    manifest.model.family = "gpt";
    manifest.model.vocab_size = manifest.model.padded_vocab_size = config.vocab_size;
    const config::RunConfig saved = families::read_saved_run(manifest, "step");
    families::GptConfig found = families::gpt_config(saved);
    found.num_query_groups = found.num_groups();
    EXPECT_EQ(found, config) << manifest.config;
    EXPECT_EQ(saved.training.precision, plan::Precision::kBf16);
  }
}

}  // namespace
}  // namespace espalier::convert::hf_config_test
