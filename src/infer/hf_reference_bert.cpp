// BERT, as transformers computes it: in Devlin et al.'s order, and in that of its megatron-bert.
#include <ATen/ATen.h>

#include <limits>

#include "infer/internal/hf_reference.h"

namespace espalier::infer {
namespace {

using at::Tensor;
using nlohmann::json;

class BertFormulas {
 public:
  BertFormulas(const json& config, const HfWeights& weights, const models::NamedTensors& inputs)
      : config_(config),
        weights_(weights),
        inputs_(inputs),
        is_post_norm_(config.at("model_type") == "bert"),
        epsilon_(get(config, "layer_norm_eps", 1e-12)),
        activation_(get<std::string>(config, "hidden_act", "gelu")) {}

  models::NamedTensors outputs() const {
    Tensor x = embeddings();
    for (int64_t layer = 0; layer < config_.at("num_hidden_layers").get<int64_t>(); ++layer)
      x = run_layer(x, "bert.encoder.layer." + std::to_string(layer) + ".");
    if (!is_post_norm_) x = norm(x, "bert.encoder.ln");
    models::NamedTensors outputs = {{"logits", words(x) * inputs_.at("used").unsqueeze(-1)}};
    if (weights_.has("cls.seq_relationship.weight")) {
      const Tensor pooled = linear(x.select(1, 0), weights_, "bert.pooler.dense").tanh();
      outputs["order"] = linear(pooled, weights_, "cls.seq_relationship");
    }
    return outputs;
  }

 private:
  // gamma and beta in the first releases.
  Tensor norm(const Tensor& x, const std::string& module) const {
    if (!weights_.has(module + ".gamma")) return layer_norm(x, weights_, module, epsilon_);
    const Tensor gamma = weights_.whole(module + ".gamma");
    return at::layer_norm(x, {x.size(-1)}, gamma, weights_.whole(module + ".beta"), epsilon_);
  }

  Tensor embeddings() const {
    const std::string name = "bert.embeddings.";
    const Tensor& ids = inputs_.at("ids");
    const auto types = inputs_.find("types");
    Tensor x = weights_.whole(name + "word_embeddings.weight").index({ids}) +
               weights_.whole(name + "position_embeddings.weight").narrow(0, 0, ids.size(1));
    x = x + weights_.whole(name + "token_type_embeddings.weight")
                .index({types == inputs_.end() ? at::zeros_like(ids) : types->second});
    return is_post_norm_ ? norm(x, name + "LayerNorm") : x;
  }

  Tensor run_layer(const Tensor& x, const std::string& layer) const {
    const int64_t heads = config_.at("num_attention_heads");
    const Tensor mask = at::zeros(inputs_.at("used").sizes(), at::kFloat)
                            .masked_fill(inputs_.at("used") == 0, -std::numeric_limits<double>::infinity())
                            .unsqueeze(1)
                            .unsqueeze(1);  // [b, 1, 1, s]
    const Tensor in = is_post_norm_ ? x : norm(x, layer + "attention.ln");
    const auto part = [&](const char* name) {
      return heads_of(linear(in, weights_, layer + "attention.self." + name), heads);
    };
    const Tensor a = attend(part("query"), part("key"), part("value"), mask);
    Tensor y = x + linear(a, weights_, layer + "attention.output.dense");
    if (is_post_norm_) y = norm(y, layer + "attention.output.LayerNorm");
    const Tensor mid = is_post_norm_ ? y : norm(y, layer + "ln");
    const Tensor m = activate(linear(mid, weights_, layer + "intermediate.dense"), activation_);
    y = y + linear(m, weights_, layer + "output.dense");
    return is_post_norm_ ? norm(y, layer + "output.LayerNorm") : y;
  }

  Tensor words(const Tensor& x) const {
    const std::string head = "cls.predictions.";
    const Tensor y =
        norm(activate(linear(x, weights_, head + "transform.dense"), activation_), head + "transform.LayerNorm");
    const Tensor bias = weights_.whole(weights_.has(head + "bias") ? head + "bias" : head + "decoder.bias");
    return at::linear(y, weights_.whole("bert.embeddings.word_embeddings.weight"), bias);
  }

  const json& config_;
  const HfWeights& weights_;
  const models::NamedTensors& inputs_;
  bool is_post_norm_;
  double epsilon_;
  std::string activation_;
};

}  // namespace

models::NamedTensors bert_formulas(const json& config, const HfWeights& weights, const models::NamedTensors& inputs) {
  return BertFormulas(config, weights, inputs).outputs();
}

}  // namespace espalier::infer
