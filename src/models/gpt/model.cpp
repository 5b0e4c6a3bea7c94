#include "models/gpt/model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "data/gpt_dataset.h"
#include "data/packed_dataset.h"
#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "models/gpt/batch.h"
#include "models/gpt/probe.h"
#include "models/lm_loss.h"
#include "tensor/observe.h"

namespace espalier::models {
namespace {

constexpr double kEmbeddingNormEpsilon = 1e-5;  // Megatron fixes it, whatever --layernorm-epsilon says

DataSets open_gpt_data(const data::DataSetOptions& options, const config::RunConfig& run,
                       const text::Tokenizer& tokenizer) {
  if (families::row_rules(run).objective.kind != data::Objective::Kind::kMultitask) {
    data::DataSetOptions filled = options;
    filled.pad_id = data::pad_id(tokenizer);
    return as_sources(data::GptDataSets::open(filled));
  }
  return as_sources(data::PackedDataSets::open(options, data::pad_id(tokenizer)));
}

// Of several sequences, whose tokens stand in one row.
void set_paged_rotary(nn::ForwardContext& context, const spec::Rotary& rotary, const nn::RotaryTables& tables,
                      const at::Tensor& positions) {
  const tensor::PagedKeyValues& pages = *context.attention.pages;
  context.rotary = tables.of_any(rotary, pages.capacity, positions.device());
  context.positions = positions;
  if (rotary.short_positions() == 0) return;
  const at::Tensor skipped = at::zeros(positions.sizes(), at::kLong);
  int64_t* const row = skipped.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < pages.tokens.size(); ++i)
    if (pages.tokens[i].is_long) row[i] = rotary.short_positions();
  context.positions = positions + skipped.to(positions.device());
}

}  // namespace

void set_rotary(nn::ForwardContext& context, const families::GptConfig& config, const nn::RotaryTables& tables,
                const at::Tensor& positions, int64_t sequence_length) {
  if (config.position_embedding != families::PositionEmbedding::kRotary) return;
  context.rotary = tables.of(config.rotary(), sequence_length, positions.device());
  context.positions = positions;
}

void set_rotary(nn::ForwardContext& context, const families::GptConfig& config, const nn::RotaryTables& tables,
                const at::Tensor& positions) {
  if (config.position_embedding != families::PositionEmbedding::kRotary) return;
  const tensor::AttentionContext& attention = context.attention;
  if (attention.pages != nullptr) return set_paged_rotary(context, config.rotary(), tables, positions);
  set_rotary(context, config, tables, positions,
             attention.cache != nullptr ? attention.cache->capacity : positions.size(1));
}

DecoderShape gpt_decoder_shape(const families::GptConfig& config, int64_t tensor_ranks) {
  const bool learned = config.position_embedding == families::PositionEmbedding::kLearned;
  const bool rotates = config.position_embedding == families::PositionEmbedding::kRotary;
  return {.num_layers = config.num_layers,
          .num_groups = config.num_groups() / tensor_ranks,
          .head_size = config.kv_channels,
          .vocab_size = config.vocab_size,
          .max_positions = learned ? config.max_position_embeddings : 0,
          .short_positions = rotates ? config.rotary().short_positions() : 0,
          .whole_prompt = config.whole_prompt};
}

GptModel::GptModel(const nn::LayerBuilder& builder, const families::GptConfig& config, const plan::DepthRange& part,
                   const Options& options)
    : config_(config), grid_(builder.grid), layers_(builder, config.layers(), part, options) {
  if (config.position_embedding == families::PositionEmbedding::kAlibi)
    alibi_slopes_ = kernels::alibi_slopes(config.num_attention_heads).to(grid_.device);
  if (part.contains(0)) {
    word_embeddings_.emplace(builder, "word_embeddings");
    if (config.embed_layernorm)
      embedding_norm_.emplace(builder, "word_embeddings.norm", spec::Normalization::kLayerNorm, kEmbeddingNormEpsilon);
    if (config.position_embedding == families::PositionEmbedding::kLearned)
      position_embeddings_.emplace(builder, "position_embeddings");
  }
  if (part.contains(config.num_layers + 1)) {
    final_layernorm_.emplace(builder, "final_layernorm", config.normalization, config.layernorm_epsilon);
    output_layer_.emplace(builder, config.tie_output ? "word_embeddings" : "lm_head", "", config.logit_soft_cap);
  }
}

std::vector<pipeline::TensorShape> GptModel::input_shapes(const tensor::Batch& batch) const {
  if (word_embeddings_) return {};
  return {layers_.hidden_shape("hidden", batch)};
}

std::vector<pipeline::TensorShape> GptModel::output_shapes(const tensor::Batch& batch) const {
  if (output_layer_) return {};
  return {layers_.hidden_shape("hidden", batch)};
}

at::Tensor GptModel::embed(const at::Tensor& ids, const at::Tensor& positions,
                           const nn::ForwardContext& context) const {
  at::Tensor x = word_embeddings_->forward(ids);  // [S, b, h]
  if (embedding_norm_) x = embedding_norm_->forward(x);
  if (position_embeddings_) x = x + position_embeddings_->forward(positions);
  if (config_.mup.embedding_mult() != 1) x = x * config_.mup.embedding_mult();
  x = kernels::dropout(x, context.dropout_site("embedding"));
  return tensor::observed("embedding", config_.fp32_residual ? x.to(at::kFloat) : x);
}

at::Tensor GptModel::last_hidden(const at::Tensor& x) const {
  const at::Tensor normed = final_layernorm_->forward(x);
  const double output_mult = config_.mup.output_mult(config_.hidden_size);
  return output_mult == 1 ? normed : normed * output_mult;
}

tensor::AttentionContext GptModel::attention_context() const {
  tensor::AttentionContext context;
  context.alibi_slopes = alibi_slopes_;
  context.window = config_.window_size;
  context.scale = config_.mup.attention_scale(config_.kv_channels);
  context.soft_cap = config_.attn_logit_soft_cap;
  return context;
}

nn::ForwardContext GptModel::training_context(const pipeline::StageInput& input) const {
  tensor::AttentionContext attention = attention_context();
  attention.first_key = input.batch->document_starts;
  const auto last_keys = input.batch->extra.find(kLastKeys);
  if (last_keys != input.batch->extra.end()) attention.last_key = last_keys->second;
  nn::ForwardContext context = layers_.training_context(
      input, attention, {.hidden = config_.hidden_dropout, .attention = config_.attention_dropout});
  set_rotary(context, config_, rotary_tables_, input.batch->positions, input.batch->ids.size(1));
  return context;
}

pipeline::StageOutput GptModel::forward(const pipeline::StageInput& input) {
  const tensor::Batch& batch = *input.batch;
  // Shared: a recomputed range runs its layers again when this function has long returned.
  const auto context = std::make_shared<const nn::ForwardContext>(training_context(input));
  at::Tensor x;
  if (word_embeddings_) {
    const int64_t s = batch.ids.size(1);
    x = embed(context_rows(grid_, s).of(batch.ids), layers_.local_rows(s).of(batch.positions), *context);
  } else {
    ESPALIER_CHECK(input.tensors.size() == 1, input.tensors.size(), " tensors for a part of a GPT");
    x = input.tensors[0].tensor;
  }
  x = layers_.forward(x, context);
  if (!output_layer_) return {.tensors = {{"hidden", x}}, .loss = {}};
  return {.tensors = {}, .loss = lm_loss(*output_layer_, grid_, last_hidden(x), batch)};
}

at::Tensor GptModel::hidden_states(const at::Tensor& ids, const at::Tensor& positions, const nn::ForwardContext& caller,
                                   const Encoded*) const {
  const at::NoGradGuard no_grad;
  nn::ForwardContext context = caller;
  set_rotary(context, config_, rotary_tables_, positions);
  at::Tensor x = embed(ids, positions, context);
  x = layers_.forward_plain(x, context);
  if (context.attention.cache != nullptr) context.attention.cache->add_to_lengths(ids.size(1));
  return last_hidden(x);
}

DecoderShape GptModel::decoder_shape() const { return gpt_decoder_shape(config_, grid_.shape.tensor); }

at::Tensor GptModel::logits(const at::Tensor& hidden) const { return output_layer_->logits(hidden); }

void GptModel::visit(tensor::ParamVisitor& visitor) {
  if (word_embeddings_) visitor.child("word_embeddings", *word_embeddings_);
  if (embedding_norm_) visitor.child("word_embeddings.norm", *embedding_norm_);
  if (position_embeddings_) visitor.child("position_embeddings", *position_embeddings_);
  layers_.visit(visitor);
  if (final_layernorm_) visitor.child("final_layernorm", *final_layernorm_);
  // A tied output is the word embedding again; only where that is elsewhere is it this part's own.
  if (output_layer_ && !config_.tie_output) visitor.child("lm_head", *output_layer_);
  if (output_layer_ && config_.tie_output && !word_embeddings_) visitor.child("word_embeddings", *output_layer_);
}

const FamilyRuntime& gpt_runtime() {
  static const FamilyRuntime runtime{
      .family = &families::gpt_family(),
      .build = [](const nn::LayerBuilder& builder, const config::RunConfig& run, const plan::DepthRange& depths,
                  const StageOptions& options) -> std::unique_ptr<pipeline::Stage> {
        return std::make_unique<GptModel>(builder, families::gpt_config(run), depths, options);
      },
      .open_data = open_gpt_data,
      .labels_are_text = true,
      .collate = [](const config::RunConfig& run, const text::Tokenizer& tokenizer) -> Collate {
        return [rules = gpt_row_rules(run, tokenizer)](const std::vector<SampleRow>& rows) {
          return make_gpt_batch(rows, rules);
        };
      },
      .build_decoder = [](const nn::LayerBuilder& builder, const config::RunConfig& run) -> std::unique_ptr<Decoder> {
        return std::make_unique<GptModel>(builder, families::gpt_config(run), StageOptions{});
      },
      .probe = &kGptProbe};
  return runtime;
}

}  // namespace espalier::models
