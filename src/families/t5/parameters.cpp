#include "families/t5/config.h"

namespace espalier::families {
namespace {

TransformerShape t5_layers(const T5Config& config) {
  return {.num_layers = config.num_layers,
          .hidden_size = config.hidden_size,
          .ffn_hidden_size = config.ffn_hidden_size,
          .num_attention_heads = config.num_attention_heads,
          .num_groups = config.num_attention_heads,
          .kv_channels = config.kv_channels,
          .normalization = config.normalization,
          .layernorm_epsilon = config.layernorm_epsilon,
          .activation = config.activation,
          .add_bias_linear = config.add_bias_linear,
          .residual_from_layernorm = config.residual_from_layernorm,
          .init_method_std = config.init_method_std};
}

}  // namespace

TransformerShape T5Config::encoder() const {
  TransformerShape shape = t5_layers(*this);
  shape.prefix = "encoder.";
  return shape;
}

// Its layers are numbered after the encoder's: dropout and caches go by that number.
TransformerShape T5Config::decoder() const {
  TransformerShape shape = t5_layers(*this);
  shape.prefix = "decoder.";
  shape.first_layer = num_layers;
  shape.num_layers = decoder_num_layers;
  shape.cross_attention = true;
  return shape;
}

std::vector<spec::ParamSpec> t5_params(const T5Config& config) {
  using spec::Init;
  using spec::Placement;
  ParamList params;
  const int64_t hidden = config.hidden_size, last = config.last_depth();
  const Init normal = Init::normal(config.init_method_std);
  const Placement vocabulary = Placement::split(0, {config.padded_vocab_size});
  std::vector<int64_t>& depths_of_words =
      params.add("word_embeddings.weight", {config.padded_vocab_size, hidden}, vocabulary, normal, true).other_depths;
  depths_of_words = {config.decoder_depth()};
  if (config.tie_output) depths_of_words.push_back(last);
  if (config.positions == T5Positions::kLearned)
    params
        .add("position_embeddings.weight", {config.max_position_embeddings, hidden}, Placement::replicated(), normal,
             true)
        .other_depths = {config.decoder_depth()};
  const TransformerShape encoder = config.encoder(), decoder = config.decoder();
  // A table of the whole stack, with its first layer.
  const auto add_relative_bias = [&](const TransformerShape& stack) {
    if (config.positions != T5Positions::kRelative) return;
    params.set_depth(stack.depth_of(0));
    spec::ParamSpec& table = params.add(stack.prefix + "relative_attention_bias.weight",
                                        {config.relative_attention_num_buckets, config.num_attention_heads},
                                        Placement::split(1, {config.num_attention_heads}), normal, true);
    for (int64_t layer = 1; layer < stack.num_layers; ++layer) table.other_depths.push_back(stack.depth_of(layer));
  };
  add_relative_bias(encoder);
  for (int64_t layer = 0; layer < encoder.num_layers; ++layer) params.add_layer(encoder, layer);
  params.add_norm("encoder.final_layernorm", hidden, config.normalization);
  add_relative_bias(decoder);
  for (int64_t layer = 0; layer < decoder.num_layers; ++layer) params.add_layer(decoder, layer);
  params.set_depth(last);
  params.add_norm("decoder.final_layernorm", hidden, config.normalization);
  if (!config.tie_output) params.add("lm_head.weight", {config.padded_vocab_size, hidden}, vocabulary, normal, true);
  if (config.add_bias_linear)
    params.add("lm_head.bias", {config.padded_vocab_size}, vocabulary, Init::constant(0), false);
  return params.take();
}

}  // namespace espalier::families
