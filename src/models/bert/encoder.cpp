#include "models/bert/encoder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "dist/collectives.h"
#include "kernels/dropout.h"
#include "models/bert/batch.h"

namespace espalier::models {

BertEncoder::BertEncoder(const nn::LayerBuilder& builder, const families::BertConfig& config,
                         const plan::DepthRange& part, const StageOptions& options)
    : config_(config),
      grid_(builder.grid),
      sequence_parallel_(builder.sequence_parallel),
      layers_(builder, config.layers(), part, options) {
  if (part.contains(0)) {
    word_embeddings_.emplace(builder, name("word_embeddings"));
    position_embeddings_.emplace(builder, name("position_embeddings"));
    if (config.num_tokentypes > 0) tokentype_embeddings_.emplace(builder, name("tokentype_embeddings"));
  }
  if (part.contains(config.last_depth()))
    final_layernorm_.emplace(builder, name("final_layernorm"), spec::Normalization::kLayerNorm,
                             config.layernorm_epsilon);
}

std::vector<pipeline::TensorShape> BertEncoder::input_shapes(const tensor::Batch& batch) const {
  if (is_first()) return {};
  return {layers_.hidden_shape("hidden", batch)};
}

std::vector<pipeline::TensorShape> BertEncoder::output_shapes(const tensor::Batch& batch) const {
  if (is_last()) return {};
  return {layers_.hidden_shape("hidden", batch)};
}

at::Tensor BertEncoder::embed(const tensor::Batch& batch, const nn::ForwardContext& context) const {
  const int64_t s = batch.ids.size(1);
  const SequenceRows local = layers_.local_rows(s);
  at::Tensor x = word_embeddings_->forward(context_rows(grid_, s).of(batch.ids));
  x = x + position_embeddings_->forward(local.of(batch.positions));
  if (tokentype_embeddings_) x = x + tokentype_embeddings_->forward(local.of(batch.extra.at(kTokenTypes)));
  return kernels::dropout(x, context.dropout_site(name("embedding").c_str()));
}

nn::ForwardContext BertEncoder::context_of(const pipeline::StageInput& input) const {
  tensor::AttentionContext attention;
  attention.mask = tensor::AttentionContext::Mask::kFull;
  attention.last_key = input.batch->extra.at(kLastKeys);
  return layers_.training_context(input, attention,
                                  {.hidden = config_.hidden_dropout, .attention = config_.attention_dropout});
}

at::Tensor BertEncoder::forward(const pipeline::StageInput& input) const {
  const auto context = std::make_shared<const nn::ForwardContext>(context_of(input));
  at::Tensor x;
  if (is_first()) {
    x = embed(*input.batch, *context);
  } else {
    ESPALIER_CHECK(input.tensors.size() == 1, input.tensors.size(), " tensors for a part of a BERT");
    x = input.tensors[0].tensor;
  }
  x = layers_.forward(x, context);
  return is_last() ? final_layernorm_->forward(x) : x;
}

at::Tensor BertEncoder::forward_plain(const tensor::Batch& batch) const {
  ESPALIER_CHECK(is_first() && is_last(), "a whole model is wanted");
  const at::NoGradGuard no_grad;
  const nn::ForwardContext context = context_of({.batch = &batch, .training = false});
  return final_layernorm_->forward(layers_.forward_plain(embed(batch, context), context));
}

pipeline::LossTerm BertEncoder::first_token_loss(const std::string& name, const at::Tensor& losses,
                                                 const at::Tensor& weights, const tensor::Batch& batch) const {
  const at::Tensor counted = losses * (has_first_token(batch) ? weights : at::zeros_like(weights));
  pipeline::LossTerm term;
  term.name = name;
  term.sum = dist::sum_over_ranks(counted.sum(), grid_.context);
  term.row_sums = counted.detach().clone();
  grid_.context.all_reduce(term.row_sums);
  if (sequence_parallel_) {
    term.sum = dist::sum_over_ranks(term.sum, grid_.tensor);
    grid_.tensor.all_reduce(term.row_sums);
  }
  term.row_counts = weights;
  term.count = term.row_counts.sum();
  return term;
}

void BertEncoder::visit(tensor::ParamVisitor& visitor) {
  if (word_embeddings_) visitor.child(name("word_embeddings"), *word_embeddings_);
  if (position_embeddings_) visitor.child(name("position_embeddings"), *position_embeddings_);
  if (tokentype_embeddings_) visitor.child(name("tokentype_embeddings"), *tokentype_embeddings_);
  layers_.visit(visitor);
  if (final_layernorm_) visitor.child(name("final_layernorm"), *final_layernorm_);
}

}  // namespace espalier::models
