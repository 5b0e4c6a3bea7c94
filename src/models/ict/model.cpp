#include "models/ict/model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/error.h"
#include "dist/collectives.h"
#include "models/bert/batch.h"
#include "models/ict/batch.h"

namespace espalier::models {
namespace {

// The rows [first, first + count) of a batch, as far as an encoder reads it.
std::shared_ptr<const tensor::Batch> rows_of(const tensor::Batch& batch, int64_t first, int64_t count) {
  const auto part = std::make_shared<tensor::Batch>();
  tensor::Batch& rows = *part;
  rows.ids = batch.ids.narrow(0, first, count);
  rows.positions = batch.positions.narrow(0, first, count);
  rows.sample_numbers.assign(batch.sample_numbers.begin() + first, batch.sample_numbers.begin() + first + count);
  for (const char* name : {kLastKeys, kTokenTypes}) rows.extra[name] = batch.extra.at(name).narrow(0, first, count);
  return part;
}

// The backward pass reads the batch (nn::ForwardContext), so it lives as long as the graph of what was made of it.
at::Tensor vectors_of(const BiencoderTower& tower, const std::shared_ptr<const tensor::Batch>& batch, bool training) {
  const at::Tensor vectors = tower.forward({.batch = batch.get(), .tensors = {}, .training = training});
  if (vectors.requires_grad()) vectors.register_hook([batch](const at::Tensor&) {});
  return vectors;
}

// How many contexts come before each query's own: those with a greater score, and of equal ones those before it.
at::Tensor places(const at::Tensor& scores, const at::Tensor& own) {
  const at::Tensor of_own = scores.gather(1, own.unsqueeze(1));
  const at::Tensor is_before = at::arange(scores.size(1), own.options()).unsqueeze(0) < own.unsqueeze(1);
  return (scores > of_own).logical_or((scores == of_own).logical_and(is_before)).sum(1);
}

}  // namespace

BiencoderTower::BiencoderTower(const nn::LayerBuilder& builder, const families::BertConfig& tower, bool projects,
                               const StageOptions& options)
    : prefix_(tower.tower.prefix), encoder_(builder, tower, {0, tower.last_depth() + 1}, options) {
  if (projects) projection_.emplace(builder, prefix_ + "projection_enc");
}

at::Tensor BiencoderTower::vectors(const at::Tensor& hidden) const {
  const at::Tensor first = hidden.select(0, 0).contiguous();
  return (projection_ ? projection_->forward(first) : first).to(at::kFloat);
}

at::Tensor BiencoderTower::forward(const pipeline::StageInput& input) const { return vectors(encoder_.forward(input)); }

at::Tensor BiencoderTower::forward_plain(const tensor::Batch& batch) const {
  const at::NoGradGuard no_grad;
  return vectors(encoder_.forward_plain(batch));
}

void BiencoderTower::visit(tensor::ParamVisitor& visitor) {
  encoder_.visit(visitor);
  if (projection_) visitor.child(prefix_ + "projection_enc", *projection_);
}

BiencoderModel::BiencoderModel(const nn::LayerBuilder& builder, const families::BiencoderSettings& settings,
                               const families::BiencoderConfig& config, const StageOptions& options)
    : grid_(builder.grid),
      sequence_parallel_(builder.sequence_parallel),
      scale_(settings.score_scaling ? 1 / std::sqrt(static_cast<double>(config.bert.hidden_size)) : 1),
      topk_(settings.topk_accuracies),
      embedding_size_(config.embedding_size()),
      max_positions_(config.bert.max_position_embeddings),
      queries_(builder, config.query_tower(), config.projection_dim > 0, options) {
  if (!config.shared) contexts_.emplace(builder, config.context_tower(), config.projection_dim > 0, options);
}

// The whole tower of queries first, so that layers whose values come and go are entered in order.
BiencoderModel::Vectors BiencoderModel::vectors(const pipeline::StageInput& input, int64_t num_queries) const {
  const tensor::Batch& batch = *input.batch;
  const int64_t num_contexts = batch.ids.size(0) - num_queries;
  if (!contexts_) {
    const at::Tensor all = queries_.forward(input);
    return {all.narrow(0, 0, num_queries), all.narrow(0, num_queries, num_contexts)};
  }
  const at::Tensor of_queries = vectors_of(queries_, rows_of(batch, 0, num_queries), input.training);
  return {of_queries, vectors_of(*contexts_, rows_of(batch, num_queries, num_contexts), input.training)};
}

// Contexts of all replicas are compared with; their gradients are summed over the queries of all.
BiencoderModel::Compared BiencoderModel::compare(const Vectors& vectors, const tensor::Batch& batch,
                                                 const dist::Group& replicas) const {
  const int64_t num_contexts = vectors.contexts.size(0);
  const at::Tensor all = dist::gather_sequence(vectors.contexts, replicas);  // [n c, d]
  at::Tensor scores = at::matmul(vectors.queries, all.t()) * scale_;         // [q, n c]
  if (const auto there = batch.extra.find(kContextsThere); there != batch.extra.end())
    scores = scores.masked_fill(dist::gather_sequence(there->second, replicas).unsqueeze(0) == 0, -INFINITY);
  return {scores, at::arange(vectors.queries.size(0), batch.ids.options()) + replicas.rank() * num_contexts};
}

pipeline::StageOutput BiencoderModel::forward(const pipeline::StageInput& input) {
  const tensor::Batch& batch = *input.batch;
  const at::Tensor& weights = batch.extra.at(kSampleWeights);
  const auto [scores, own] = compare(vectors(input, weights.size(0)), batch, grid_.data);
  const BertEncoder& encoder = queries_.encoder();
  pipeline::StageOutput output;
  output.loss.push_back(
      encoder.first_token_loss("loss", at::cross_entropy_loss(scores, own, {}, at::Reduction::None), weights, batch));
  const at::Tensor before = places(scores.detach(), own);
  for (const int64_t k : topk_) {
    output.loss.push_back(
        encoder.first_token_loss(concat("top", k, "_acc"), (before < k).to(at::kFloat) * 100, weights, batch));
    output.loss.back().is_measure = true;
  }
  return output;
}

// Of the first tokens, which one rank of a divided sequence has; the others add nothing.
at::Tensor BiencoderModel::own_places(const tensor::Batch& batch) const {
  const at::NoGradGuard no_grad;
  const Vectors found =
      vectors({.batch = &batch, .tensors = {}, .training = false}, batch.extra.at(kSampleWeights).size(0));
  const auto [scores, own] = compare(found, batch, dist::single_process().data);
  at::Tensor before = places(scores, own);
  if (!queries_.encoder().has_first_token(batch)) before.zero_();
  grid_.context.all_reduce(before);
  if (sequence_parallel_) grid_.tensor.all_reduce(before);
  return before;
}

at::Tensor BiencoderModel::embed(const at::Tensor& ids, Side side) const {
  const int64_t s = ids.size(0);
  tensor::Batch batch;
  batch.ids = ids.unsqueeze(0);
  batch.positions = at::arange(s, at::kLong).unsqueeze(0);
  batch.sample_numbers = {0};
  batch.extra = {{kLastKeys, at::full({1, s}, s - 1, at::kInt)}, {kTokenTypes, at::zeros({1, s}, at::kLong)}};
  return (side == Side::kQuery ? queries_ : context_tower()).forward_plain(batch).squeeze(0);
}

void BiencoderModel::visit(tensor::ParamVisitor& visitor) {
  queries_.visit(visitor);
  if (contexts_) contexts_->visit(visitor);
}

namespace {

DataSets open_ict_data(const data::DataSetOptions& options, const config::RunConfig& run,
                       const text::Tokenizer& tokenizer) {
  Problems problems;
  data::IctSampleOptions samples = families::ict_samples(run);
  samples.vocabulary = data::SentenceVocabulary::make(tokenizer, data::SentenceModel::kBert, problems);
  problems.raise();
  return as_sources(data::IctDataSets::open(options, samples));
}

std::unique_ptr<BiencoderModel> build_biencoder(const nn::LayerBuilder& builder, const config::RunConfig& run,
                                                const StageOptions& options) {
  const families::BiencoderSettings& settings = run.model.as<families::IctSettings>().biencoder;
  return std::make_unique<BiencoderModel>(builder, settings, families::biencoder_config(settings, run.vocabulary),
                                          options);
}

}  // namespace

const FamilyRuntime& ict_runtime() {
  static const FamilyRuntime runtime{
      .family = &families::ict_family(),
      .build = [](const nn::LayerBuilder& builder, const config::RunConfig& run, const plan::DepthRange&,
                  const StageOptions& options) -> std::unique_ptr<pipeline::Stage> {
        return build_biencoder(builder, run, options);
      },
      .open_data = open_ict_data,
      .collate = [](const config::RunConfig&, const text::Tokenizer&) -> Collate { return make_ict_batch; },
      .build_text_encoder = [](const nn::LayerBuilder& builder, const config::RunConfig& run)
          -> std::unique_ptr<TextEncoder> { return build_biencoder(builder, run, {}); }};
  return runtime;
}

}  // namespace espalier::models
