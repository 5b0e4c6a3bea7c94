#include "models/gpt/model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "data/gpt_dataset.h"
#include "dist/collectives.h"
#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "models/gpt/batch.h"

namespace espalier::models {
namespace {

constexpr double kEmbeddingNormEpsilon = 1e-5;  // Megatron fixes it, whatever --layernorm-epsilon says

std::string layer_name(int64_t layer) { return "layers." + std::to_string(layer); }

nn::AttentionShape attention_shape(const families::GptConfig& config) {
  nn::AttentionShape shape{.num_heads = config.num_attention_heads,
                           .num_groups = config.num_groups(),
                           .head_size = config.kv_channels,
                           .qkv_bias = config.add_bias_linear || config.add_qkv_bias,
                           .dense_bias = config.add_bias_linear,
                           .rotary = config.position_embedding == families::PositionEmbedding::kRotary,
                           .rotary_interleaved = config.rotary_interleaved,
                           .head_norm_epsilon = {}};
  if (config.qk_layernorm) shape.head_norm_epsilon = config.layernorm_epsilon;
  return shape;
}

}  // namespace

GptBlock::GptBlock(const nn::LayerBuilder& builder, const families::GptConfig& config, int64_t layer)
    : input_layernorm_(builder, layer_name(layer) + ".input_layernorm", config.normalization, config.layernorm_epsilon),
      self_attention_(builder, layer_name(layer) + ".self_attention", layer, attention_shape(config)),
      post_attention_layernorm_(builder, layer_name(layer) + ".post_attention_layernorm", config.normalization,
                                config.layernorm_epsilon),
      mlp_(builder, layer_name(layer) + ".mlp", config.activation, config.add_bias_linear),
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

GptModel::GptModel(const nn::LayerBuilder& builder, const families::GptConfig& config, const plan::DepthRange& part,
                   const Options& options)
    : config_(config),
      options_(options),
      grid_(builder.grid),
      sequence_parallel_(builder.sequence_parallel),
      gather_(builder.gather),
      compute_type_(builder.params.compute_type()) {
  // With sequence parallelism every rank keeps its own rows already.
  if (options.divide_kept_inputs && !builder.sequence_parallel) keepers_ = grid_.tensor;
  if (config.position_embedding == families::PositionEmbedding::kAlibi)
    alibi_slopes_ = kernels::alibi_slopes(config.num_attention_heads).to(grid_.device);
  if (part.contains(0)) {
    word_embeddings_.emplace(builder, "word_embeddings");
    if (config.embed_layernorm)
      embedding_norm_.emplace(builder, "word_embeddings.norm", spec::Normalization::kLayerNorm, kEmbeddingNormEpsilon);
    if (config.position_embedding == families::PositionEmbedding::kLearned)
      position_embeddings_.emplace(builder, "position_embeddings");
  }
  first_layer_ = std::max<int64_t>(part.begin, 1) - 1;
  for (int64_t layer = first_layer_; layer < std::min(part.end - 1, config.num_layers); ++layer)
    layers_.emplace_back(builder, config, layer);
  if (part.contains(config.num_layers + 1)) {
    final_layernorm_.emplace(builder, "final_layernorm", config.normalization, config.layernorm_epsilon);
    output_layer_.emplace(builder, config.tie_output ? "word_embeddings" : "lm_head");
  }
}

GptModel::Rows GptModel::context_rows(int64_t sequence_length) const {
  const int64_t count = sequence_length / grid_.shape.context;
  return {grid_.position.context * count, count};
}

GptModel::Rows GptModel::local_rows(int64_t sequence_length) const {
  const Rows rows = context_rows(sequence_length);
  if (!sequence_parallel_) return rows;
  const int64_t count = rows.count / grid_.shape.tensor;
  return {rows.first + grid_.position.tensor * count, count};
}

std::vector<pipeline::TensorShape> GptModel::input_shapes(const tensor::Batch& batch) const {
  return word_embeddings_ ? std::vector<pipeline::TensorShape>() : hidden_shape(batch);
}

std::vector<pipeline::TensorShape> GptModel::output_shapes(const tensor::Batch& batch) const {
  return output_layer_ ? std::vector<pipeline::TensorShape>() : hidden_shape(batch);
}

std::vector<pipeline::TensorShape> GptModel::hidden_shape(const tensor::Batch& batch) const {
  return {{"hidden", {local_rows(batch.ids.size(1)).count, batch.ids.size(0), config_.hidden_size}, compute_type_}};
}

at::Tensor GptModel::embed(const at::Tensor& ids, const at::Tensor& positions,
                           const nn::ForwardContext& context) const {
  at::Tensor x = word_embeddings_->forward(ids);  // [S, b, h]
  if (embedding_norm_) x = embedding_norm_->forward(x);
  if (position_embeddings_) x = x + position_embeddings_->forward(positions);
  return kernels::dropout(x, context.dropout_site("embedding"));
}

tensor::AttentionContext GptModel::attention_context() const {
  tensor::AttentionContext context;
  context.alibi_slopes = alibi_slopes_;
  context.window = config_.window_size;
  return context;
}

void GptModel::set_rotary(nn::ForwardContext& context, const at::Tensor& positions, int64_t sequence_length) const {
  if (config_.position_embedding != families::PositionEmbedding::kRotary) return;
  context.rotary = rotary_tables_.of(config_.rotary(), sequence_length, positions.device());
  context.positions = positions;
}

nn::ForwardContext GptModel::training_context(const pipeline::StageInput& input) const {
  nn::ForwardContext context;
  context.attention = attention_context();
  context.attention.first_key = input.batch->document_starts;
  context.attention.sample_numbers = input.batch->sample_numbers;
  context.attention.seed = context.seed = options_.seed;
  context.attention.dropout = input.training ? config_.attention_dropout : 0;
  context.hidden_dropout = input.training ? config_.hidden_dropout : 0;
  context.first_position = local_rows(input.batch->ids.size(1)).first;
  context.sample_numbers = &input.batch->sample_numbers;
  set_rotary(context, input.batch->positions, input.batch->ids.size(1));
  return context;
}

at::Tensor GptModel::run_layers(at::Tensor x, const std::shared_ptr<const nn::ForwardContext>& context) const {
  const auto layer = [this, context](int64_t number, const at::Tensor& in) {
    const int64_t global = first_layer_ + number;
    const at::Tensor out =
        layers_[static_cast<size_t>(number)].forward(dist::before_layer(gather_, global, in), *context);
    return dist::after_layer(gather_, global, out);
  };
  for (const pipeline::LayerRange& range : options_.recompute.ranges(static_cast<int64_t>(layers_.size())))
    x = pipeline::run_layers(range, x, layer, keepers_);
  return x;
}

pipeline::LossTerm GptModel::loss(const at::Tensor& x, const tensor::Batch& batch) const {
  const Rows rows = context_rows(batch.ids.size(1));
  const auto of_rank = [&rows](const at::Tensor& whole) {
    return whole.narrow(1, rows.first, rows.count).t().contiguous();  // [b, s] -> [s/cp, b]
  };
  const at::Tensor mask = of_rank(batch.loss_mask);
  const nn::OutputLayer::Losses losses = output_layer_->loss(x, of_rank(batch.labels), mask);
  pipeline::LossTerm term;
  term.name = "lm loss";
  term.sum = dist::sum_over_ranks(losses.sum, grid_.context);
  term.count = batch.loss_mask.sum();
  term.row_sums = (losses.per_token * mask).sum(0);
  grid_.context.all_reduce(term.row_sums);
  term.row_counts = batch.loss_mask.sum(1);
  return term;
}

pipeline::StageOutput GptModel::forward(const pipeline::StageInput& input) {
  const tensor::Batch& batch = *input.batch;
  // Shared: a recomputed range runs its layers again when this function has long returned.
  const auto context = std::make_shared<const nn::ForwardContext>(training_context(input));
  at::Tensor x;
  if (word_embeddings_) {
    const Rows ids = context_rows(batch.ids.size(1)), positions = local_rows(batch.ids.size(1));
    x = embed(batch.ids.narrow(1, ids.first, ids.count).contiguous(),
              batch.positions.narrow(1, positions.first, positions.count).contiguous(), *context);
  } else {
    ESPALIER_CHECK(input.tensors.size() == 1, input.tensors.size(), " tensors for a part of a GPT");
    x = input.tensors[0].tensor;
  }
  x = run_layers(x, context);
  if (!output_layer_) return {.tensors = {{"hidden", x}}, .loss = {}};
  return {.tensors = {}, .loss = {loss(final_layernorm_->forward(x), batch)}};
}

at::Tensor GptModel::hidden_states(const at::Tensor& ids, const at::Tensor& positions,
                                   const nn::ForwardContext& caller) const {
  const at::NoGradGuard no_grad;
  nn::ForwardContext context = caller;
  set_rotary(context, positions, caller.attention.cache != nullptr ? caller.attention.cache->capacity : ids.size(1));
  at::Tensor x = embed(ids, positions, context);
  for (const GptBlock& layer : layers_) x = layer.forward(x, context);
  if (context.attention.cache != nullptr) context.attention.cache->add_to_lengths(ids.size(1));
  return final_layernorm_->forward(x);
}

DecoderShape GptModel::decoder_shape() const {
  const bool learned = config_.position_embedding == families::PositionEmbedding::kLearned;
  return {.num_layers = config_.num_layers,
          .num_groups = config_.num_groups(),
          .head_size = config_.kv_channels,
          .vocab_size = config_.vocab_size,
          .max_positions = learned ? config_.max_position_embeddings : 0};
}

at::Tensor GptModel::logits(const at::Tensor& hidden) const { return output_layer_->logits(hidden); }

void GptModel::visit(tensor::ParamVisitor& visitor) {
  if (word_embeddings_) visitor.child("word_embeddings", *word_embeddings_);
  if (embedding_norm_) visitor.child("word_embeddings.norm", *embedding_norm_);
  if (position_embeddings_) visitor.child("position_embeddings", *position_embeddings_);
  for (size_t layer = 0; layer < layers_.size(); ++layer)
    visitor.child(layer_name(first_layer_ + static_cast<int64_t>(layer)), layers_[layer]);
  if (final_layernorm_) visitor.child("final_layernorm", *final_layernorm_);
  // A tied output is the word embedding again; only where that lies elsewhere is it this part's own.
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
      .open_data = [](const data::DataSetOptions& options, const config::RunConfig&,
                      const text::Tokenizer&) { return as_sources(data::GptDataSets::open(options)); },
      .collate = [](const config::RunConfig& run, const text::Tokenizer& tokenizer) -> Collate {
        return [masks = mask_options(run.data, tokenizer)](const std::vector<SampleRow>& rows) {
          return make_gpt_batch(rows, masks);
        };
      },
      .build_decoder = [](const nn::LayerBuilder& builder, const config::RunConfig& run) -> std::unique_ptr<Decoder> {
        return std::make_unique<GptModel>(builder, families::gpt_config(run), StageOptions{});
      }};
  return runtime;
}

}  // namespace espalier::models
