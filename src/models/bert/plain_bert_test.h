// The encoder of a BERT from plain ATen in double, written from the formulas: for tests of models that have one.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <string>

#include "families/bert/config.h"

namespace espalier::models {

class PlainBertEncoder {
 public:
  // Of `values`, which outlive it, the names that begin with the tower's prefix; those of other layers are whole names.
  PlainBertEncoder(const families::BertConfig& config, const std::map<std::string, at::Tensor>& values)
      : config_(config), values_(values) {}

  // ids, types, padding (1 where there is a token): [b, s] -> [b, s, h] after the last norm.
  at::Tensor hidden(const at::Tensor& ids, const at::Tensor& types, const at::Tensor& padding) const {
    at::Tensor x = at::embedding(own("word_embeddings.weight"), ids) +
                   own("position_embeddings.weight").narrow(0, 0, ids.size(1)).unsqueeze(0);
    if (config_.num_tokentypes > 0) x = x + at::embedding(own("tokentype_embeddings.weight"), types);
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) x = run_layer(x, layer, padding);
    return norm(x, config_.tower.prefix + "final_layernorm");
  }

  const at::Tensor& p(const std::string& name) const { return values_.at(name); }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    return at::matmul(x, p(name + ".weight").t()) + p(name + ".bias");
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    const at::Tensor centred = x - x.mean(-1, true);
    return centred / (centred.square().mean(-1, true) + config_.layernorm_epsilon).sqrt() * p(name + ".weight") +
           p(name + ".bias");
  }
  static at::Tensor gelu(const at::Tensor& x, spec::Activation activation) {
    if (activation == spec::Activation::kGeluErf) return x * 0.5 * (1 + (x / std::sqrt(2.0)).erf());
    return 0.5 * x * (1 + (std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)).tanh());
  }

 private:
  const at::Tensor& own(const std::string& name) const { return p(config_.tower.prefix + name); }
  at::Tensor attention(const at::Tensor& qkv, const at::Tensor& padding) const {
    const int64_t b = qkv.size(0), s = qkv.size(1), n = config_.num_attention_heads, d = config_.kv_channels;
    const at::Tensor heads = qkv.view({b, s, n, 3, d}).permute({3, 0, 2, 1, 4});  // [3, b, n, s, d]
    at::Tensor scores = at::matmul(heads[0], heads[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(d));
    scores = scores.masked_fill((padding == 0).view({b, 1, 1, s}), -INFINITY);
    return at::matmul(at::softmax(scores, -1), heads[2]).permute({0, 2, 1, 3}).reshape({b, s, n * d});
  }
  at::Tensor run_layer(const at::Tensor& x, int64_t layer, const at::Tensor& padding) const {
    const std::string name = config_.tower.prefix + "layers." + std::to_string(layer) + ".";
    const at::Tensor a_in = norm(x, name + "input_layernorm");
    const at::Tensor mixed = attention(linear(a_in, name + "self_attention.query_key_value"), padding);
    const at::Tensor a = linear(mixed, name + "self_attention.dense") + (config_.residual_from_layernorm ? a_in : x);
    const at::Tensor m_in = norm(a, name + "post_attention_layernorm");
    return linear(gelu(linear(m_in, name + "mlp.dense_h_to_4h"), config_.activation), name + "mlp.dense_4h_to_h") +
           (config_.residual_from_layernorm ? m_in : a);
  }

  families::BertConfig config_;
  const std::map<std::string, at::Tensor>& values_;
};

}  // namespace espalier::models
