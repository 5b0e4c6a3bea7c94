// GPT-2, as transformers computes it.
#include <ATen/ATen.h>

#include <cmath>

#include "infer/internal/hf_reference.h"

namespace espalier::infer {
namespace {

using at::Tensor;
using nlohmann::json;

Tensor gpt2(const json& config, const HfWeights& weights, const Tensor& ids) {
  const double epsilon = get(config, "layer_norm_epsilon", 1e-5);
  const int64_t heads = config.at("n_head");
  const auto conv = [&](const Tensor& x, const std::string& name) {
    return at::matmul(x, weights.base(name + ".weight")) + weights.base(name + ".bias");
  };
  Tensor x = weights.base("wte.weight").index({ids}) + weights.base("wpe.weight").narrow(0, 0, ids.size(1));
  for (int64_t layer = 0; layer < config.at("n_layer").get<int64_t>(); ++layer) {
    const std::string h = "h." + std::to_string(layer) + ".";
    const auto qkv = conv(layer_norm(x, weights, h + "ln_1", epsilon), h + "attn.c_attn").chunk(3, -1);
    const Tensor a = attend_before(heads_of(qkv[0], heads), heads_of(qkv[1], heads), heads_of(qkv[2], heads), {}, 0);
    x = x + conv(a, h + "attn.c_proj");
    const Tensor m = activate(conv(layer_norm(x, weights, h + "ln_2", epsilon), h + "mlp.c_fc"),
                              get<std::string>(config, "activation_function", "gelu_new"));
    x = x + conv(m, h + "mlp.c_proj");
  }
  return output_logits(layer_norm(x, weights, "ln_f", epsilon), weights, config, true, "wte.weight");
}

}  // namespace

models::NamedTensors gpt2_formulas(const json& config, const HfWeights& weights, const models::NamedTensors& inputs) {
  return {{"logits", gpt2(config, weights, inputs.at("ids"))}};
}

}  // namespace espalier::infer
