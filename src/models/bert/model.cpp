#include "models/bert/model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "data/sentence_dataset.h"
#include "dist/collectives.h"
#include "kernels/dropout.h"
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
    : config_(config),
      grid_(builder.grid),
      sequence_parallel_(builder.sequence_parallel),
      layers_(builder, config.layers(), part, options) {
  if (part.contains(0)) {
    word_embeddings_.emplace(builder, "word_embeddings");
    position_embeddings_.emplace(builder, "position_embeddings");
    if (config.num_tokentypes > 0) tokentype_embeddings_.emplace(builder, "tokentype_embeddings");
  }
  if (!part.contains(config.num_layers + 1)) return;
  final_layernorm_.emplace(builder, "final_layernorm", spec::Normalization::kLayerNorm, config.layernorm_epsilon);
  lm_head_.emplace(builder, config);
  if (!config.binary_head) return;
  pooler_.emplace(builder, "pooler.dense");
  binary_head_.emplace(builder, "binary_head");
}

std::vector<pipeline::TensorShape> BertModel::input_shapes(const tensor::Batch& batch) const {
  if (word_embeddings_) return {};
  return {layers_.hidden_shape("hidden", batch)};
}

std::vector<pipeline::TensorShape> BertModel::output_shapes(const tensor::Batch& batch) const {
  if (lm_head_) return {};
  return {layers_.hidden_shape("hidden", batch)};
}

at::Tensor BertModel::embed(const tensor::Batch& batch, const nn::ForwardContext& context) const {
  const int64_t s = batch.ids.size(1);
  const SequenceRows local = layers_.local_rows(s);
  at::Tensor x = word_embeddings_->forward(context_rows(grid_, s).of(batch.ids));
  x = x + position_embeddings_->forward(local.of(batch.positions));
  if (tokentype_embeddings_) x = x + tokentype_embeddings_->forward(local.of(batch.extra.at(kTokenTypes)));
  return kernels::dropout(x, context.dropout_site("embedding"));
}

at::Tensor BertModel::order_logits(const at::Tensor& hidden) const {
  const at::Tensor pooled = pooler_->forward(hidden.select(0, 0).contiguous()).tanh();  // [b, h]
  return binary_head_->forward(pooled).to(at::kFloat);
}

// Of the first token of each sample. Every process computes it from the first row that it has, so that all of them use
// the same parameters equally often; what those without the first token find has the factor 0.
pipeline::LossTerm BertModel::sentence_order_loss(const at::Tensor& hidden, const tensor::Batch& batch) const {
  const at::Tensor logits = order_logits(hidden);
  const at::Tensor losses = at::cross_entropy_loss(logits, batch.extra.at(kHalvesSwapped), {}, at::Reduction::None);
  const bool has_first_token = layers_.local_rows(batch.ids.size(1)).first == 0;
  const at::Tensor counted = has_first_token ? losses : losses * 0;
  pipeline::LossTerm term;
  term.name = "sop loss";
  term.sum = dist::sum_over_ranks(counted.sum(), grid_.context);
  term.row_sums = counted.detach().clone();
  grid_.context.all_reduce(term.row_sums);
  if (sequence_parallel_) {
    term.sum = dist::sum_over_ranks(term.sum, grid_.tensor);
    grid_.tensor.all_reduce(term.row_sums);
  }
  term.row_counts = at::ones_like(term.row_sums);
  term.count = term.row_counts.sum();
  return term;
}

nn::ForwardContext BertModel::context_of(const pipeline::StageInput& input) const {
  tensor::AttentionContext attention;
  attention.mask = tensor::AttentionContext::Mask::kFull;
  attention.last_key = input.batch->extra.at(kLastKeys);
  return layers_.training_context(input, attention,
                                  {.hidden = config_.hidden_dropout, .attention = config_.attention_dropout});
}

BertModel::Logits BertModel::logits(const tensor::Batch& batch) const {
  ESPALIER_CHECK(word_embeddings_ && lm_head_, "logits are those of a whole model");
  const at::NoGradGuard no_grad;
  const nn::ForwardContext context = context_of({.batch = &batch, .training = false});
  const at::Tensor hidden = final_layernorm_->forward(layers_.forward_plain(embed(batch, context), context));
  Logits logits{.words = lm_head_->output().logits(lm_head_->transform(hidden)).transpose(0, 1), .order = {}};
  if (binary_head_) logits.order = order_logits(hidden);
  return logits;
}

pipeline::StageOutput BertModel::forward(const pipeline::StageInput& input) {
  const tensor::Batch& batch = *input.batch;
  const auto context = std::make_shared<const nn::ForwardContext>(context_of(input));
  at::Tensor x;
  if (word_embeddings_) {
    x = embed(batch, *context);
  } else {
    ESPALIER_CHECK(input.tensors.size() == 1, input.tensors.size(), " tensors for a part of a BERT");
    x = input.tensors[0].tensor;
  }
  x = layers_.forward(x, context);
  if (!lm_head_) return {.tensors = {{"hidden", x}}, .loss = {}};
  const at::Tensor hidden = final_layernorm_->forward(x);
  pipeline::StageOutput output;
  output.loss.push_back(lm_loss(lm_head_->output(), grid_, lm_head_->transform(hidden), batch));
  if (binary_head_) output.loss.push_back(sentence_order_loss(hidden, batch));
  return output;
}

void BertModel::visit(tensor::ParamVisitor& visitor) {
  if (word_embeddings_) visitor.child("word_embeddings", *word_embeddings_);
  if (position_embeddings_) visitor.child("position_embeddings", *position_embeddings_);
  if (tokentype_embeddings_) visitor.child("tokentype_embeddings", *tokentype_embeddings_);
  layers_.visit(visitor);
  if (!lm_head_) return;
  visitor.child("final_layernorm", *final_layernorm_);
  visitor.child("lm_head", *lm_head_);
  if (pooler_) visitor.child("pooler.dense", *pooler_);
  if (binary_head_) visitor.child("binary_head", *binary_head_);
  // Where the word embedding lies elsewhere, it is this part's own too.
  if (!word_embeddings_) visitor.param("word_embeddings.weight", lm_head_->output().weight());
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
