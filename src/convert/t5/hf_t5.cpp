// t5 and mt5 of transformers: RMS norms, no biases, relative positions, attention scores that are not scaled.
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "convert/hf/config.h"
#include "convert/hf/internal/activation_names.h"
#include "convert/hf/internal/map_builder.h"
#include "convert/hf/internal/reasons.h"
#include "convert/t5/internal/t5.h"

namespace espalier::convert {
namespace {

using families::T5Config;

// What transformers assumes where a key is absent.
struct T5Row {
  const char* model_type;
  const char* name;  // that its classes begin with
  const char* feed_forward;
  bool scales_tied_output;
};
constexpr T5Row kT5{"t5", "T5", "relu", true};
constexpr T5Row kMt5{"mt5", "MT5", "gated-gelu", false};

// Nothing in a config.json says how long samples were: those of the published models have 512 tokens, and 114 of the
// decoder.
constexpr int64_t kEncoderLength = 512, kDecoderLength = 128;

T5Config t5_of(const ModelConfig& model) { return families::t5_config(model.settings, model.vocabulary); }

// "relu", "gated-gelu"; which gelu a gate has is stated separately.
void read_feed_forward(ConfigReader& reader, const T5Row& row, T5Config& config) {
  const std::string words = reader.text("feed_forward_proj", row.feed_forward);
  const bool gated = words.starts_with("gated-");
  const std::string name = words == "gated-gelu" ? "gelu_new" : gated ? words.substr(6) : words;
  if (reader.text("dense_act_fn", name) != name || reader.flag("is_gated_act", gated) != gated)
    reader.problem("feed_forward_proj", "'", words, "' and dense_act_fn or is_gated_act differ");
  config.activation = activation_of(reader, "feed_forward_proj", name, gated);
}

void read_output(ConfigReader& reader, const T5Row& row, const HfTensors& stored, T5Config& config) {
  const bool says_tied = reader.flag("tie_word_embeddings", true);
  config.scale_tied_output = row.scales_tied_output && reader.flag("scale_decoder_outputs", says_tied);
  // Releases of one layer of weights store it twice; transformers 5 calls every T5 tied and loads what is stored.
  config.tie_output = !stored.has("lm_head.weight") || (says_tied && config.scale_tied_output);
  if (!config.tie_output && config.scale_tied_output)
    reader.problem("scale_decoder_outputs", "true is only supported with a tied output layer");
}

void read_t5(const T5Row& row, ConfigReader& reader, const HfTensors& stored, HfModel& model) {
  check_architectures(reader, {concat(row.name, "ForConditionalGeneration"), concat(row.name, "Model"),
                               concat(row.name, "WithLMHeadModel")});
  T5Config config;
  config.num_layers = reader.required_size({"num_layers"}, kMostLayers);
  config.decoder_num_layers = reader.size({"num_decoder_layers"}, kMostLayers).value_or(config.num_layers);
  config.hidden_size = reader.required_size({"d_model"}, kMostHidden);
  config.ffn_hidden_size = reader.required_size({"d_ff"}, kMostFfn);
  config.num_attention_heads = reader.required_size({"num_heads"}, kMostHeads);
  config.kv_channels = reader.required_size({"d_kv"}, kMostHeads);
  config.positions = families::T5Positions::kRelative;
  config.max_position_embeddings = kEncoderLength;
  config.relative_attention_num_buckets = reader.size({"relative_attention_num_buckets"}, 1'000'000).value_or(32);
  config.relative_attention_max_distance = reader.size({"relative_attention_max_distance"}).value_or(128);
  config.normalization = spec::Normalization::kRmsNorm;
  config.layernorm_epsilon = reader.number("layer_norm_epsilon", 1e-6, 0, 1);
  config.add_bias_linear = config.scale_attention = false;
  config.hidden_dropout = config.attention_dropout = reader.number("dropout_rate", 0.1, 0, 1);
  read_feed_forward(reader, row, config);
  read_output(reader, row, stored, config);
  reader.require("is_encoder_decoder", true, "an encoder alone is not a T5 here");
  reader.ignore(
      {"initializer_factor", "initializer_range", "classifier_dropout", "n_positions", "output_past", "is_decoder"});
  model.config.settings = config::FamilyConfig(families::t5_settings(config, kDecoderLength));
  model.config.longest_sequence = kEncoderLength;
}

std::vector<std::string> obstacles_of_t5(const T5Row& row, const ModelConfig& model) {
  const T5Config config = t5_of(model);
  Reasons reasons;
  reasons.unless(config.positions == families::T5Positions::kRelative, "positions are relative");
  reasons.unless(config.normalization == spec::Normalization::kRmsNorm, "it has RMS norms");
  reasons.unless(!config.add_bias_linear, "no linear layer has a bias, nor have the logits");
  reasons.unless(!config.scale_attention, "attention scores are not scaled (--unscaled-attention-scores)");
  reasons.unless(!config.residual_from_layernorm, "residual branches start before the norm");
  reasons.unless(name_of(config.activation).has_value() && config.activation != spec::Activation::kGeglu,
                 "the activation has a name");
  if (row.scales_tied_output)
    reasons.unless(!config.tie_output || config.scale_tied_output,
                   "a tied output layer scales what it multiplies (--scale-tied-logits)");
  else
    reasons.unless(!config.scale_tied_output, "the output layer does not scale what it multiplies");
  return reasons.list;
}

void write_t5(const T5Row& row, const ModelConfig& model, nlohmann::ordered_json& json) {
  const T5Config config = t5_of(model);
  json["num_layers"] = config.num_layers;
  json["num_decoder_layers"] = config.decoder_num_layers;
  json["d_model"] = config.hidden_size;
  json["d_ff"] = config.ffn_hidden_size;
  json["num_heads"] = config.num_attention_heads;
  json["d_kv"] = config.kv_channels;
  json["relative_attention_num_buckets"] = config.relative_attention_num_buckets;
  json["relative_attention_max_distance"] = config.relative_attention_max_distance;
  json["layer_norm_epsilon"] = config.layernorm_epsilon;
  json["dropout_rate"] = config.hidden_dropout;
  const bool gated = spec::is_gated(config.activation);
  const std::string name = *name_of(config.activation);
  const bool is_gelu_gate = config.activation == spec::Activation::kGegluTanh;
  json["feed_forward_proj"] = is_gelu_gate ? "gated-gelu" : (gated ? "gated-" : "") + name;
  json["dense_act_fn"] = is_gelu_gate ? "gelu_new" : name;
  json["is_gated_act"] = gated;
  json["is_encoder_decoder"] = true;
  json["tie_word_embeddings"] = config.tie_output;
  if (row.scales_tied_output) json["scale_decoder_outputs"] = config.scale_tied_output;
}

void map_t5_mlp(HfMapBuilder& builder, bool gated, const std::string& theirs) {
  const std::string both = "mlp.dense_h_to_4h.weight";
  if (gated) {
    std::vector<int64_t> half = builder.our_shape(both);
    half[0] /= 2;
    TensorMap& map = builder.map();
    map.add(rows(map, builder.ours(both), 0, map.theirs.add(theirs + "wi_0.weight", half), 0, half[0]));
    map.add(rows(map, builder.ours(both), half[0], map.theirs.add(theirs + "wi_1.weight", half), 0, half[0]));
  } else {
    builder.same(both, theirs + "wi.weight");
  }
  builder.same("mlp.dense_4h_to_h.weight", theirs + "wo.weight");
}

void map_t5_stack(HfMapBuilder& builder, const T5Config& config, const families::TransformerShape& stack) {
  const HeadShape heads{config.num_attention_heads, config.num_attention_heads, config.kv_channels};
  builder.set_prefix("");
  builder.same(stack.prefix + "relative_attention_bias.weight",
               stack.prefix + "block.0.layer.0.SelfAttention.relative_attention_bias.weight");
  builder.same(stack.prefix + "final_layernorm.weight", stack.prefix + "final_layer_norm.weight");
  for (int64_t layer = 0; layer < stack.num_layers; ++layer) {
    const std::string block = concat(stack.prefix, "block.", layer, ".layer.");
    builder.set_prefix(stack.layer_name(layer) + ".");
    const std::string self = block + "0.SelfAttention.";
    builder.same("input_layernorm.weight", block + "0.layer_norm.weight");
    builder.add_qkv("self_attention.query_key_value.weight", heads,
                    {self + "q.weight", self + "k.weight", self + "v.weight"});
    builder.same("self_attention.dense.weight", self + "o.weight");
    std::string before_mlp = "post_attention_layernorm.weight", mlp = block + "1.";
    if (stack.cross_attention) {
      const std::string cross = block + "1.EncDecAttention.";
      builder.same("post_attention_layernorm.weight", block + "1.layer_norm.weight");
      builder.same("inter_attention.query.weight", cross + "q.weight");
      builder.add_key_value("inter_attention.key_value.weight", heads, {cross + "k.weight", cross + "v.weight"});
      builder.same("inter_attention.dense.weight", cross + "o.weight");
      before_mlp = "post_inter_attention_layernorm.weight", mlp = block + "2.";
    }
    builder.same(before_mlp, mlp + "layer_norm.weight");
    map_t5_mlp(builder, spec::is_gated(config.activation), mlp + "DenseReluDense.");
  }
  builder.set_prefix("");
}

TensorMap map_t5(const ModelConfig& model, const HfTensors& theirs) {
  const T5Config config = t5_of(model);
  HfMapBuilder builder(model, theirs);
  builder.add_vocabulary("word_embeddings.weight", "shared.weight");
  for (const char* copy : {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"})
    if (theirs.has(copy)) builder.copy_vocabulary("word_embeddings.weight", copy);
  map_t5_stack(builder, config, config.encoder());
  map_t5_stack(builder, config, config.decoder());
  if (!config.tie_output)
    builder.add_vocabulary("lm_head.weight", "lm_head.weight");
  else if (theirs.has("lm_head.weight"))
    builder.copy_vocabulary("word_embeddings.weight", "lm_head.weight");
  return builder.take();
}

// A table that older releases store and nothing reads.
bool is_unused_t5_table(const std::string& name, const ModelConfig&) {
  return name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
}

HfCodec t5_codec(const T5Row& row) {
  return {.model_type = row.model_type,
          .family = &families::t5_family(),
          .read = [&row](ConfigReader& reader, const HfTensors& stored,
                         HfModel& model) { read_t5(row, reader, stored, model); },
          .obstacles = [&row](const ModelConfig& model) { return obstacles_of_t5(row, model); },
          .architecture = [&row](const ModelConfig&) { return concat(row.name, "ForConditionalGeneration"); },
          .write = [&row](const ModelConfig& model, nlohmann::ordered_json& json) { write_t5(row, model, json); },
          .map = map_t5,
          .leaves_out = is_unused_t5_table};
}

}  // namespace

std::vector<HfCodec> t5_codecs() { return {t5_codec(kT5), t5_codec(kMt5)}; }

}  // namespace espalier::convert
