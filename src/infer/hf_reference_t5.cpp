// T5 and mT5, as transformers computes them.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "infer/internal/hf_reference.h"

namespace espalier::infer {
namespace {

using at::Tensor;
using nlohmann::json;

struct T5Formulas {
  const json& config;
  const HfWeights& weights;
  const bool gated;
  const std::string act;
  const int64_t heads = config.at("num_heads");
  const double epsilon = get(config, "layer_norm_epsilon", 1e-6);

  Tensor norm(const Tensor& x, const std::string& module) const {
    return x * (x.square().mean(-1, true) + epsilon).rsqrt() * weights.whole(module + ".weight");
  }
  Tensor product(const Tensor& x, const std::string& module) const {
    return at::matmul(x, weights.whole(module + ".weight").t());
  }

  // Raffel et al. 2020: half of the buckets have one distance each, the others ranges that grow as powers.
  int64_t bucket(int64_t key_minus_query, bool is_encoder) const {
    int64_t buckets = get(config, "relative_attention_num_buckets", int64_t{32}), first = 0;
    int64_t distance = -key_minus_query;
    if (is_encoder) {
      buckets /= 2;
      if (key_minus_query > 0) first = buckets;
      distance = std::abs(distance);
    } else {
      distance = std::max<int64_t>(distance, 0);
    }
    const int64_t exact = buckets / 2;
    if (distance < exact) return first + distance;
    const double most = static_cast<double>(get(config, "relative_attention_max_distance", int64_t{128}));
    const float ratio = std::log(static_cast<float>(distance) / static_cast<float>(exact));
    const auto steps = static_cast<float>(std::log(most / static_cast<double>(exact)));
    return first +
           std::min(buckets - 1, exact + static_cast<int64_t>(ratio / steps * static_cast<float>(buckets - exact)));
  }

  Tensor position_bias(const std::string& stack, int64_t length, bool is_encoder) const {  // [n, s, s]
    const Tensor places = at::empty({length, length}, at::kLong);
    for (int64_t query = 0; query < length; ++query)
      for (int64_t key = 0; key < length; ++key)
        places.data_ptr<int64_t>()[query * length + key] = bucket(key - query, is_encoder);
    const Tensor table = weights.whole(stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight");
    const Tensor bias = table.index({places}).permute({2, 0, 1});
    if (is_encoder) return bias;
    return bias + at::full({length, length}, -std::numeric_limits<float>::infinity()).triu(1);
  }

  Tensor attention(const Tensor& x, const Tensor& others, const std::string& module, const Tensor& bias) const {
    const Tensor q = heads_of(product(x, module + ".q"), heads), k = heads_of(product(others, module + ".k"), heads);
    const Tensor v = heads_of(product(others, module + ".v"), heads);
    Tensor scores = at::matmul(q, k.transpose(2, 3));  // not scaled
    if (bias.defined()) scores = scores + bias;
    const Tensor mixed = at::matmul(at::softmax(scores, -1), v).transpose(1, 2).reshape({x.size(0), x.size(1), -1});
    return product(mixed, module + ".o");
  }

  Tensor feed_forward(const Tensor& x, const std::string& module) const {
    const Tensor inner = gated ? activate(product(x, module + ".wi_0"), act) * product(x, module + ".wi_1")
                               : activate(product(x, module + ".wi"), act);
    return product(inner, module + ".wo");
  }

  Tensor stack(const std::string& name, int64_t layers, const Tensor& ids, const Tensor& encoded) const {
    const bool is_encoder = !encoded.defined();
    const Tensor bias = position_bias(name, ids.size(1), is_encoder);
    Tensor x = weights.whole("shared.weight").index({ids});
    for (int64_t layer = 0; layer < layers; ++layer) {
      const std::string block = name + ".block." + std::to_string(layer) + ".layer.";
      const Tensor in = norm(x, block + "0.layer_norm");
      x = x + attention(in, in, block + "0.SelfAttention", bias);
      if (!is_encoder) x = x + attention(norm(x, block + "1.layer_norm"), encoded, block + "1.EncDecAttention", {});
      const std::string last = block + (is_encoder ? "1" : "2");
      x = x + feed_forward(norm(x, last + ".layer_norm"), last + ".DenseReluDense");
    }
    return norm(x, name + ".final_layer_norm");
  }
};

}  // namespace

models::NamedTensors t5_formulas(const json& config, const HfWeights& weights, const models::NamedTensors& inputs) {
  const bool is_mt5 = config.at("model_type") == "mt5";
  const std::string words = get<std::string>(config, "feed_forward_proj", is_mt5 ? "gated-gelu" : "relu");
  const bool gated = words.starts_with("gated-");
  const std::string act = words == "gated-gelu" ? "gelu_new" : gated ? words.substr(6) : words;
  const T5Formulas formulas{config, weights, gated, act};
  const int64_t layers = config.at("num_layers"), decoder_layers = get(config, "num_decoder_layers", layers);
  const Tensor encoded = formulas.stack("encoder", layers, inputs.at("ids"), {});
  Tensor x = formulas.stack("decoder", decoder_layers, inputs.at("decoder_ids"), encoded);
  const bool scales = !is_mt5 && get(config, "scale_decoder_outputs", get(config, "tie_word_embeddings", true));
  if (scales) x = x / std::sqrt(config.at("d_model").get<double>());
  const bool has_head = weights.has("lm_head.weight");
  return {{"logits", at::matmul(x, weights.whole(has_head ? "lm_head.weight" : "shared.weight").t())}};
}

}  // namespace espalier::infer
