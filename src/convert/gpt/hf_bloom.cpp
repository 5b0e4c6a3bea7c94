// bloom: BLOOM (Le Scao et al. 2022). Names and order of its tensors are Megatron's.
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "convert/gpt/internal/hf_gpt.h"
#include "convert/hf/config.h"

namespace espalier::convert {
namespace {

using families::GptConfig;

constexpr int64_t kBloomPositions = 2048;  // of the published models; config.json has no key for it

void read_bloom(ConfigReader& reader, const HfTensors&, HfModel& model) {
  GptConfig config = read_common_gpt(reader, model, /*is_tied_unless_said=*/true);
  check_architectures(reader, {"BloomForCausalLM"}, {"BloomModel"});
  config.num_layers = reader.required_size({"n_layer", "num_hidden_layers"}, kMostLayers);
  config.hidden_size = reader.required_size({"n_embed", "hidden_size"}, kMostHidden);
  config.num_attention_heads = reader.required_size({"n_head", "num_attention_heads"}, kMostHeads);
  config.ffn_hidden_size = 4 * config.hidden_size;
  config.max_position_embeddings = reader.size({"seq_length"}).value_or(kBloomPositions);
  config.position_embedding = families::PositionEmbedding::kAlibi;
  config.embed_layernorm = true;
  config.layernorm_epsilon = reader.number("layer_norm_epsilon", 1e-5, 0, 1);
  if (config.layernorm_epsilon != 1e-5)
    reader.problem("layer_norm_epsilon", format_shortest(config.layernorm_epsilon),
                   " is not supported: the norm after the embedding has 1e-05 here, as in Megatron");
  config.activation = spec::Activation::kGeluTanh;
  config.residual_from_layernorm = reader.flag("apply_residual_connection_post_layernorm", false);
  config.hidden_dropout = reader.number("hidden_dropout", 0, 0, 1);
  config.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  reader.ignore({"slow_but_exact", "pretraining_tp", "n_inner", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv",
                 "bias_dropout_fusion", "masked_softmax_fusion", "attention_softmax_in_fp32", "unk_token_id"});
  read_gpt_heads(reader, config);
  set_gpt(config, model);
}

std::vector<std::string> obstacles_of_bloom(const ModelConfig& model) {
  const GptConfig config = gpt_of(model);
  Reasons reasons;
  check_old_style_gpt(config, reasons);
  reasons.unless(config.position_embedding == families::PositionEmbedding::kAlibi, "positions are ALiBi's");
  reasons.unless(config.embed_layernorm, "a norm follows the embedding");
  reasons.unless(config.layernorm_epsilon == 1e-5, "the epsilon of its norms is 1e-05, that of the embedding's");
  reasons.unless(config.activation == spec::Activation::kGeluTanh, "the activation is gelu in its tanh form");
  reasons.unless(config.ffn_hidden_size == 4 * config.hidden_size, "the MLP is 4 * hidden size wide");
  return reasons.list;
}

void write_bloom(const ModelConfig& model, nlohmann::ordered_json& json) {
  const GptConfig config = gpt_of(model);
  erase_old_spellings(json);
  write_common_gpt(config, json);
  json["n_layer"] = config.num_layers;
  json["hidden_size"] = config.hidden_size;
  json["n_head"] = config.num_attention_heads;
  json["seq_length"] = config.max_position_embeddings;
  json["layer_norm_epsilon"] = config.layernorm_epsilon;
  json["apply_residual_connection_post_layernorm"] = config.residual_from_layernorm;
  json["hidden_dropout"] = config.hidden_dropout;
  json["attention_dropout"] = config.attention_dropout;
}

TensorMap map_bloom(const ModelConfig& model, const HfTensors& theirs) {
  const GptConfig config = gpt_of(model);
  HfMapBuilder builder(model, theirs);
  const std::string base = prefix_of_base(theirs, "transformer.", "word_embeddings.weight");
  builder.add_vocabulary("word_embeddings.weight", base + "word_embeddings.weight");
  builder.same_module("word_embeddings.norm", base + "word_embeddings_layernorm");
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    builder.set_prefix(config.layers().layer_name(layer) + ".");
    for (const char* name : {"input_layernorm", "self_attention.query_key_value", "self_attention.dense",
                             "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"})
      builder.same_module(name, concat(base, "h.", layer, ".", name));
  }
  builder.set_prefix("");
  builder.same_module("final_layernorm", base + "ln_f");
  map_gpt_head(builder, config, theirs);
  return builder.take();
}

}  // namespace

HfCodec bloom_codec() {
  return {.model_type = "bloom",
          .family = &families::gpt_family(),
          .read = read_bloom,
          .obstacles = obstacles_of_bloom,
          .architecture = [](const ModelConfig&) { return "BloomForCausalLM"; },
          .write = write_bloom,
          .map = map_bloom,
          .leaves_out = is_gpt_buffer};
}

}  // namespace espalier::convert
