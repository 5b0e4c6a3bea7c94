#include "models/bert/model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "data/sentence_dataset.h"
#include "models/bert/batch.h"
#include "models/bert/probe.h"
#include "models/lm_loss.h"

namespace espalier::models {

BertLmHead::BertLmHead(const nn::LayerBuilder& builder, const families::BertConfig& config)
    : dense_(builder, "lm_head.dense"),
      layernorm_(builder, "lm_head.layernorm", spec::Normalization::kLayerNorm, config.layernorm_epsilon),
      output_(builder, "word_embeddings", "lm_head.bias"),
      activation_(config.head_activation) {}

at::Tensor BertLmHead::transform(const at::Tensor& x) const {
  return layernorm_.forward(dense_.forward(x, activation_));
}

void BertLmHead::visit(tensor::ParamVisitor& visitor) {
  visitor.child("dense", dense_);
  visitor.child("layernorm", layernorm_);
  visitor.param("bias", *output_.bias());
}

BertModel::BertModel(const nn::LayerBuilder& builder, const families::BertConfig& config, const plan::DepthRange& part,
                     const StageOptions& options)
    : grid_(builder.grid), encoder_(builder, config, part, options) {
  if (!encoder_.is_last()) return;
  lm_head_.emplace(builder, config);
  if (!config.binary_head) return;
  pooler_.emplace(builder, "pooler.dense");
  binary_head_.emplace(builder, "binary_head");
}

std::vector<pipeline::TensorShape> BertModel::input_shapes(const tensor::Batch& batch) const {
  return encoder_.input_shapes(batch);
}

std::vector<pipeline::TensorShape> BertModel::output_shapes(const tensor::Batch& batch) const {
  return encoder_.output_shapes(batch);
}

at::Tensor BertModel::order_logits(const at::Tensor& hidden) const {
  const at::Tensor pooled = pooler_->forward(hidden.select(0, 0).contiguous()).tanh();  // [b, h]
  return binary_head_->forward(pooled).to(at::kFloat);
}

pipeline::LossTerm BertModel::sentence_order_loss(const at::Tensor& hidden, const tensor::Batch& batch) const {
  const at::Tensor losses =
      at::cross_entropy_loss(order_logits(hidden), batch.extra.at(kHalvesSwapped), {}, at::Reduction::None);
  return encoder_.first_token_loss("sop loss", losses, at::ones_like(losses.detach()), batch);
}

BertModel::Logits BertModel::logits(const tensor::Batch& batch) const {
  ESPALIER_CHECK(lm_head_, "logits are those of a whole model");
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = encoder_.forward_plain(batch);
  Logits logits{.words = lm_head_->output().logits(lm_head_->transform(hidden)).transpose(0, 1), .order = {}};
  if (binary_head_) logits.order = order_logits(hidden);
  return logits;
}

pipeline::StageOutput BertModel::forward(const pipeline::StageInput& input) {
  const at::Tensor hidden = encoder_.forward(input);
  if (!lm_head_) return {.tensors = {{"hidden", hidden}}, .loss = {}};
  pipeline::StageOutput output;
  output.loss = lm_loss(lm_head_->output(), grid_, lm_head_->transform(hidden), *input.batch);
  if (binary_head_) output.loss.push_back(sentence_order_loss(hidden, *input.batch));
  return output;
}

void BertModel::visit(tensor::ParamVisitor& visitor) {
  encoder_.visit(visitor);
  if (!lm_head_) return;
  visitor.child("lm_head", *lm_head_);
  if (pooler_) visitor.child("pooler.dense", *pooler_);
  if (binary_head_) visitor.child("binary_head", *binary_head_);
  // Where the word embedding is elsewhere, it is this part's own too.
  if (!encoder_.is_first()) visitor.param("word_embeddings.weight", lm_head_->output().weight());
}

const FamilyRuntime& bert_runtime() {
  static const FamilyRuntime runtime{
      .family = &families::bert_family(),
      .build = [](const nn::LayerBuilder& builder, const config::RunConfig& run, const plan::DepthRange& depths,
                  const StageOptions& options) -> std::unique_ptr<pipeline::Stage> {
        return std::make_unique<BertModel>(builder, families::bert_config(run), depths, options);
      },
      .open_data =
          [](const data::DataSetOptions& options, const config::RunConfig& run, const text::Tokenizer& tokenizer) {
            Problems problems;
            data::SentenceSampleOptions samples = families::bert_samples(run);
            samples.vocabulary = data::SentenceVocabulary::make(tokenizer, samples.model, problems);
            problems.raise();
            return as_sources(data::SentenceDataSets::open(options, samples));
          },
      .collate = [](const config::RunConfig& run, const text::Tokenizer&) -> Collate {
        return [binary_head = families::bert_config(run).binary_head](const std::vector<SampleRow>& rows) {
          return make_bert_batch(rows, binary_head);
        };
      },
      .masked_logits = bert_masked_logits,
      .probe = &kBertProbe};
  return runtime;
}

}  // namespace espalier::models
