// The multipliers of muP in the weights: no family of transformers that models are written as has them all.
#include <cmath>

#include "convert/gpt/internal/hf_gpt.h"

namespace espalier::convert {
namespace {

using families::GptConfig;

class MupFolding {
 public:
  explicit MupFolding(const GptConfig& config) : config_(config) {
    for (const spec::ParamSpec& param : families::gpt_params(config)) sizes_[param.name] = param.shape[0];
  }

  void fold_embedding() {
    const double factor = config_.mup.embedding_mult();
    if (config_.embed_layernorm)
      multiply_module("word_embeddings.norm", factor);
    else
      multiply("word_embeddings.weight", factor);
    multiply("position_embeddings.weight", factor);
  }

  // Queries are projected, and normed where they are, before scores are scaled.
  void fold_attention() {
    const std::optional<double> scale = config_.mup.attention_scale(config_.kv_channels);
    if (!scale) return;
    const double factor = *scale * std::sqrt(static_cast<double>(config_.kv_channels));
    const int64_t queries = config_.num_attention_heads / config_.num_groups() * config_.kv_channels;
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      const std::string name = config_.layers().layer_name(layer) + ".self_attention.";
      if (config_.qk_layernorm) {
        multiply(name + "query_norm.weight", factor);
        continue;
      }
      for (const char* part : {"query_key_value.weight", "query_key_value.bias"})
        multiply(name + part, factor,
                 {.first = 0, .count = queries, .stride = config_.group_channels(), .times = config_.num_groups()});
    }
  }

  // A tied output layer has the embedding's factor already.
  void fold_output() {
    const bool is_in_weights = config_.tie_output && !config_.embed_layernorm;
    const double already = is_in_weights ? config_.mup.embedding_mult() : 1;
    multiply_module("final_layernorm", config_.mup.output_mult(config_.hidden_size) / already);
  }

  std::vector<FoldedRows> take() { return std::move(rows_); }

 private:
  // Nothing where the model has no such tensor.
  void multiply(const std::string& tensor, double factor, spec::MatrixRows rows = {}) {
    const auto found = sizes_.find(tensor);
    if (found == sizes_.end() || factor == 1) return;
    if (rows.count == 0) rows = {.first = 0, .count = found->second, .stride = found->second, .times = 1};
    rows_.push_back({tensor, rows, factor});
  }
  void multiply_module(const std::string& name, double factor) {
    multiply(name + ".weight", factor);
    multiply(name + ".bias", factor);
  }

  const GptConfig& config_;
  std::map<std::string, int64_t> sizes_;  // rows
  std::vector<FoldedRows> rows_;
};

}  // namespace

Folding fold_mup(const ModelConfig& model) {
  GptConfig config = gpt_of(model);
  if (!config.mup.mup) return {model, {}, {}};
  MupFolding folding(config);
  folding.fold_embedding();
  folding.fold_attention();
  folding.fold_output();
  Folding result{model, folding.take(),
                 "what --mup multiplies by is in the weights; config.json describes a model without muP"};
  config.mup = {};
  result.model.settings = config::FamilyConfig(families::gpt_settings(config));
  return result;
}

}  // namespace espalier::convert
