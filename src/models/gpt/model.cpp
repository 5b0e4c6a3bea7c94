#include "models/gpt/model.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "kernels/linear_cross_entropy.h"

namespace espalier::models {
namespace {

constexpr double kEmbeddingNormEpsilon = 1e-5;  // Megatron fixes it, whatever --layernorm-epsilon says

std::string layer_name(int64_t layer) { return "layers." + std::to_string(layer); }

}  // namespace

GptBlock::GptBlock(tensor::ParamSet& params, const spec::GptConfig& config, int64_t layer)
    : input_layernorm_(params, layer_name(layer) + ".input_layernorm", config.layernorm_epsilon),
      self_attention_(params, layer_name(layer) + ".self_attention", layer, config.num_attention_heads),
      post_attention_layernorm_(params, layer_name(layer) + ".post_attention_layernorm", config.layernorm_epsilon),
      mlp_(params, layer_name(layer) + ".mlp", config.activation),
      residual_from_layernorm_(config.residual_from_layernorm) {}

at::Tensor GptBlock::forward(const at::Tensor& x, const nn::ForwardContext& context) const {
  const at::Tensor attention_input = input_layernorm_.forward(x);
  const at::Tensor a =
      self_attention_.forward(attention_input, residual_from_layernorm_ ? attention_input : x, context);
  const at::Tensor mlp_input = post_attention_layernorm_.forward(a);
  return mlp_.forward(mlp_input, residual_from_layernorm_ ? mlp_input : a, context);
}

void GptBlock::visit(tensor::ParamVisitor& visitor) {
  visitor.child("input_layernorm", input_layernorm_);
  visitor.child("self_attention", self_attention_);
  visitor.child("post_attention_layernorm", post_attention_layernorm_);
  visitor.child("mlp", mlp_);
}

GptModel::GptModel(tensor::ParamSet& params, const spec::GptConfig& config, const pipeline::RecomputePlan& recompute,
                   uint64_t seed)
    : config_(config),
      seed_(seed),
      recompute_(recompute),
      word_embeddings_(params, "word_embeddings"),
      final_layernorm_(params, "final_layernorm", config.layernorm_epsilon),
      output_weight_(params.at(config.tie_output ? "word_embeddings.weight" : "lm_head.weight")),
      queue_(params.grad_queue()) {
  if (config.position_embedding == spec::PositionEmbedding::kAlibi)
    alibi_slopes_ = kernels::alibi_slopes(config.num_attention_heads);
  if (config.embed_layernorm) embedding_norm_.emplace(params, "word_embeddings.norm", kEmbeddingNormEpsilon);
  if (config.position_embedding == spec::PositionEmbedding::kLearned)
    position_embeddings_.emplace(params, "position_embeddings");
  for (int64_t layer = 0; layer < config.num_layers; ++layer) layers_.emplace_back(params, config, layer);
}

at::Tensor GptModel::embed(const at::Tensor& ids, const at::Tensor& positions,
                           const nn::ForwardContext& context) const {
  at::Tensor x = word_embeddings_.forward(ids);  // [s, b, h]
  if (embedding_norm_) x = embedding_norm_->forward(x);
  if (position_embeddings_) x = x + position_embeddings_->forward(positions);
  return kernels::dropout(x, context.dropout_site("embedding"));
}

tensor::AttentionContext GptModel::attention_context() const {
  tensor::AttentionContext context;
  context.alibi_slopes = alibi_slopes_;
  return context;
}

nn::ForwardContext GptModel::training_context(const pipeline::StageInput& input) const {
  nn::ForwardContext context;
  context.attention = attention_context();
  context.attention.first_key = input.batch->document_starts;
  context.attention.sample_numbers = input.batch->sample_numbers;
  context.attention.seed = context.seed = seed_;
  context.attention.dropout = input.training ? config_.attention_dropout : 0;
  context.hidden_dropout = input.training ? config_.hidden_dropout : 0;
  context.sample_numbers = &input.batch->sample_numbers;
  return context;
}

pipeline::StageOutput GptModel::forward(const pipeline::StageInput& input) {
  const tensor::Batch& batch = *input.batch;
  // Shared: a recomputed range runs its layers again when this function has long returned.
  const auto context = std::make_shared<const nn::ForwardContext>(training_context(input));
  at::Tensor x = embed(batch.ids, batch.positions, *context);
  const auto layer = [this, context](int64_t number, const at::Tensor& in) {
    return layers_[number].forward(in, *context);
  };
  for (const pipeline::LayerRange& range : recompute_.ranges(config_.num_layers))
    x = pipeline::run_layers(range, x, layer);
  x = final_layernorm_.forward(x);

  const int64_t b = batch.ids.size(0), s = batch.ids.size(1);
  const at::Tensor labels = batch.labels.t().contiguous().view({s * b});
  const at::Tensor mask = batch.loss_mask.t().contiguous().view({s * b});
  const kernels::TokenLosses losses =
      kernels::linear_cross_entropy(x.view({s * b, -1}), output_weight_, {labels, mask}, queue_);

  pipeline::LossTerm term{
      .name = "lm loss", .sum = losses.sum, .count = mask.sum(), .weight = 1, .row_sums = {}, .row_counts = {}};
  term.row_sums = (losses.per_token * mask).view({s, b}).sum(0);
  term.row_counts = mask.view({s, b}).sum(0);
  return {.tensors = {}, .loss = {std::move(term)}};
}

at::Tensor GptModel::hidden_states(const at::Tensor& ids, const at::Tensor& positions,
                                   const nn::ForwardContext& context) const {
  const at::NoGradGuard no_grad;
  at::Tensor x = embed(ids, positions, context);
  for (const GptBlock& layer : layers_) x = layer.forward(x, context);
  if (context.attention.cache != nullptr) context.attention.cache->length += ids.size(1);
  return final_layernorm_.forward(x);
}

at::Tensor GptModel::logits(const at::Tensor& hidden) const {
  const at::NoGradGuard no_grad;
  return at::matmul(hidden, output_weight_.value.t()).to(at::kFloat);
}

void GptModel::visit(tensor::ParamVisitor& visitor) {
  visitor.child("word_embeddings", word_embeddings_);
  if (embedding_norm_) visitor.child("word_embeddings.norm", *embedding_norm_);
  if (position_embeddings_) visitor.child("position_embeddings", *position_embeddings_);
  for (size_t layer = 0; layer < layers_.size(); ++layer)
    visitor.child(layer_name(static_cast<int64_t>(layer)), layers_[layer]);
  visitor.child("final_layernorm", final_layernorm_);
  if (!config_.tie_output) visitor.param("lm_head.weight", output_weight_);
}

}  // namespace espalier::models
