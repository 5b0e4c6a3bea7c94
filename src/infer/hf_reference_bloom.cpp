// BLOOM, as transformers computes it.
#include <ATen/ATen.h>

#include <cmath>

#include "infer/internal/hf_reference.h"

namespace espalier::infer {
namespace {

using at::Tensor;
using nlohmann::json;

// Press et al. 2022: powers of 2^(-8/n) for the largest power of two n, then every second one of twice as many heads.
std::vector<double> slopes_of(int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes;
  for (int64_t head = 0; head < power; ++head)
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(head + 1) / static_cast<double>(power)));
  for (int64_t head = 0; head < heads - power; ++head)
    slopes.push_back(std::exp2(-4.0 * static_cast<double>(2 * head + 1) / static_cast<double>(power)));
  return slopes;
}

Tensor bloom(const json& config, const HfWeights& weights, const Tensor& ids) {
  const double epsilon = get(config, "layer_norm_epsilon", 1e-5);
  const int64_t heads = config.contains("n_head") ? config.at("n_head") : config.at("num_attention_heads");
  const int64_t layers = config.contains("n_layer") ? config.at("n_layer") : config.at("num_hidden_layers");
  const bool from_norm = get(config, "apply_residual_connection_post_layernorm", false);
  const Tensor slopes = at::tensor(slopes_of(heads), at::kFloat).view({heads, 1, 1});
  const Tensor bias = slopes * at::arange(ids.size(1), at::kFloat);  // [n, 1, s]
  Tensor x =
      layer_norm(weights.base("word_embeddings.weight").index({ids}), weights, "word_embeddings_layernorm", epsilon);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string h = "h." + std::to_string(layer) + ".";
    const Tensor in = layer_norm(x, weights, h + "input_layernorm", epsilon);
    const Tensor qkv = linear(in, weights, h + "self_attention.query_key_value")
                           .view({ids.size(0), ids.size(1), heads, 3, -1})
                           .permute({3, 0, 2, 1, 4});  // [3, b, n, s, d]
    x = (from_norm ? in : x) +
        linear(attend_before(qkv[0], qkv[1], qkv[2], bias, 0), weights, h + "self_attention.dense");
    const Tensor mid = layer_norm(x, weights, h + "post_attention_layernorm", epsilon);
    const Tensor m = at::gelu(linear(mid, weights, h + "mlp.dense_h_to_4h"), "tanh");
    x = (from_norm ? mid : x) + linear(m, weights, h + "mlp.dense_4h_to_h");
  }
  return output_logits(layer_norm(x, weights, "ln_f", epsilon), weights, config, true, "word_embeddings.weight");
}

}  // namespace

models::NamedTensors bloom_formulas(const json& config, const HfWeights& weights, const models::NamedTensors& inputs) {
  return {{"logits", bloom(config, weights, inputs.at("ids"))}};
}

}  // namespace espalier::infer
