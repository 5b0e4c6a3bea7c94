// For tests: a GPT of plain ATen operations in double, written from the formulas, in which a matrix says which token
// sees which.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "families/gpt/config.h"
#include "models/gpt/model.h"

namespace espalier::models::plain_gpt {

// Learned, ALiBi or rotary positions; layer norms and biases.
class PlainGpt {
 public:
  PlainGpt(const families::GptConfig& config, tensor::ParamSet& params) : config_(config) {
    for (const tensor::Param& param : params.params())
      values_[param.spec->name] = param.value.to(at::kDouble).clone().requires_grad_(true);
  }

  // ids and positions [b, s] int64, of which only learned positions are read; visible [b, s, s] bool: query, key.
  // Returns [b, s, V]. `added`: what attention and MLP of each layer add to the stream, [b, s, h].
  at::Tensor logits(const at::Tensor& ids, const at::Tensor& positions, const at::Tensor& visible,
                    std::vector<at::Tensor>* added = nullptr) const {
    at::Tensor x = at::embedding(p("word_embeddings.weight"), ids);
    if (config_.embed_layernorm) x = norm(x, "word_embeddings.norm");
    if (config_.position_embedding == families::PositionEmbedding::kLearned)
      x = x + at::embedding(p("position_embeddings.weight"), positions);
    if (config_.mup.mup) x = x * config_.mup.mup_embedding_mult;
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) x = run_layer(x, layer, visible, added);
    const at::Tensor& output = p(config_.tie_output ? "word_embeddings.weight" : "lm_head.weight");
    const at::Tensor logits = at::matmul(norm(x, "final_layernorm"), output.t());
    const double cap = config_.logit_soft_cap;
    if (!config_.mup.mup) return cap == 0 ? logits : cap * (logits / cap).tanh();
    const double narrower =
        static_cast<double>(config_.mup.mup_base_hidden_size.value()) / static_cast<double>(config_.hidden_size);
    return logits * config_.mup.mup_output_mult.value_or(narrower);
  }
  // [b, s]: of each label alone.
  static at::Tensor losses(const at::Tensor& logits, const at::Tensor& labels) {
    return -at::log_softmax(logits, 2).gather(2, labels.unsqueeze(2)).squeeze(2);
  }
  const std::map<std::string, at::Tensor>& values() const { return values_; }

 private:
  const at::Tensor& p(const std::string& name) const { return values_.at(name); }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    return at::matmul(x, p(name + ".weight").t()) + p(name + ".bias");
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    const at::Tensor centred = x - x.mean(-1, true);
    return centred / (centred.square().mean(-1, true) + 1e-5).sqrt() * p(name + ".weight") + p(name + ".bias");
  }
  // [b, n, s, d], turned by the place in the row, as Megatron counts.
  at::Tensor turned(const at::Tensor& x) const {
    if (config_.position_embedding != families::PositionEmbedding::kRotary) return x;
    const int64_t s = x.size(2), half = x.size(3) / 2;
    const at::Tensor wave = at::pow(10000.0, -at::arange(half, at::kDouble) / static_cast<double>(half));
    const at::Tensor angle = at::outer(at::arange(s, at::kDouble), wave);  // [s, d/2]
    const at::Tensor a = x.narrow(3, 0, half), b = x.narrow(3, half, half);
    return at::cat({a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()}, 3);
  }
  // Megatron-DeepSpeed adds slope * place of the key; the place of the query would cancel out.
  at::Tensor alibi(int64_t s) const {
    const int64_t n = config_.num_attention_heads;
    ESPALIER_CHECK((n & (n - 1)) == 0, n, " heads: the formula is of powers of 2");
    const at::Tensor slopes = at::pow(2.0, -8.0 * (at::arange(n, at::kDouble) + 1) / static_cast<double>(n));
    return slopes.view({1, n, 1, 1}) * at::arange(s, at::kDouble);
  }
  at::Tensor attention(const at::Tensor& qkv, const at::Tensor& visible) const {
    const int64_t b = qkv.size(0), s = qkv.size(1), n = config_.num_attention_heads, d = config_.kv_channels;
    const at::Tensor heads = qkv.view({b, s, n, 3, d}).permute({3, 0, 2, 1, 4});  // [3, b, n, s, d]
    const double base = config_.mup.mup_base_head_dim.value_or(static_cast<double>(d));
    at::Tensor scores =
        at::matmul(turned(heads[0]), turned(heads[1]).transpose(-1, -2)) * std::sqrt(base) / static_cast<double>(d);
    const double cap = config_.attn_logit_soft_cap;
    if (cap > 0) scores = cap * (scores / cap).tanh();
    if (config_.position_embedding == families::PositionEmbedding::kAlibi) scores = scores + alibi(s);
    // Finite, as Megatron has it: what sees nothing (padding) sees all alike, and nothing reads it.
    scores = scores.masked_fill(visible.logical_not().unsqueeze(1), -1e300);
    return at::matmul(at::softmax(scores, -1), heads[2]).permute({0, 2, 1, 3}).reshape({b, s, n * d});
  }
  at::Tensor run_layer(const at::Tensor& x, int64_t layer, const at::Tensor& visible,
                       std::vector<at::Tensor>* added) const {
    const std::string name = "layers." + std::to_string(layer) + ".";
    const at::Tensor qkv = linear(norm(x, name + "input_layernorm"), name + "self_attention.query_key_value");
    const at::Tensor a = x + linear(attention(qkv, visible), name + "self_attention.dense");
    const at::Tensor inner = linear(norm(a, name + "post_attention_layernorm"), name + "mlp.dense_h_to_4h");
    const at::Tensor gelu =
        0.5 * inner * (1 + (std::sqrt(2 / M_PI) * (inner + 0.044715 * inner * inner * inner)).tanh());
    const at::Tensor y = a + linear(gelu, name + "mlp.dense_4h_to_h");
    if (added != nullptr) added->insert(added->end(), {a - x, y - a});
    return y;
  }

  families::GptConfig config_;
  std::map<std::string, at::Tensor> values_;
};

inline families::Mup awkward_mup() {
  return {.mup = true, .mup_base_hidden_size = 12, .mup_embedding_mult = 1.7, .mup_base_head_dim = 3};
}

inline families::GptConfig awkward_gpt(families::PositionEmbedding positions) {
  families::GptConfig config;
  config.num_layers = 2;
  config.hidden_size = 32;
  config.ffn_hidden_size = 40;
  config.num_attention_heads = 4;
  config.kv_channels = 8;
  config.max_position_embeddings = 40;
  config.vocab_size = 29;
  config.padded_vocab_size = 33;
  config.position_embedding = positions;
  config.embed_layernorm = positions == families::PositionEmbedding::kAlibi;
  config.hidden_dropout = config.attention_dropout = 0;
  return config;
}

// A whole model with random values, also where one begins with 0 or 1, so that no gradient is left out.
struct WholeGpt {
  explicit WholeGpt(const families::GptConfig& config)
      : params(families::gpt_params(config), {}, at::kFloat, true),
        model(nn::LayerBuilder{params, dist::single_process()}, config, {}) {
    at::Generator generator = at::detail::createCPUGenerator(3);
    for (tensor::Param& param : params.params()) {
      const at::Tensor noise = at::randn(param.value.sizes(), generator, at::kFloat) * 0.2;
      param.value.copy_(param.spec->init.kind == spec::Init::Kind::kConstant ? noise + param.spec->init.value : noise);
    }
  }
  tensor::ParamSet params;
  GptModel model;
};

}  // namespace espalier::models::plain_gpt
