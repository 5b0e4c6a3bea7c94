#include "models/retro/model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "data/gpt_dataset.h"
#include "dist/layer_gather.h"
#include "kernels/dropout.h"
#include "models/gpt/batch.h"
#include "models/gpt/model.h"
#include "models/lm_loss.h"
#include "models/retro/batch.h"
#include "retrieval/retro_dataset.h"
#include "tensor/observe.h"

namespace espalier::models {
namespace {

constexpr double kNormEpsilonOfWords = 1e-5;  // as of a GPT

data::RowRules rules_of_retro(const config::RunConfig& run, const text::Tokenizer& tokenizer) {
  data::RowRules rules = families::retro_row_rules(run);
  Problems problems;
  rules.text = data::TextMaskOptions::make(rules.text, tokenizer, problems);
  problems.raise();
  return rules;
}

DataSets open_retro_data(const data::DataSetOptions& asked, const config::RunConfig& run, const text::Tokenizer&) {
  const data::DataSetOptions options = families::retro_data_sets(asked, run);
  if (!families::reads_neighbors(run)) return as_sources(data::GptDataSets::open(options));
  const families::RetroSettings& settings = run.model.as<families::RetroSettings>();
  return as_sources(
      retrieval::RetroDataSets::open(options, {.workdir = settings.workdir,
                                               .num_neighbors = settings.shape.num_neighbors,
                                               .num_retrieved_chunks = settings.shape.num_retrieved_chunks}));
}

// Rows of their own kind: of sample n those from n * per_sample on.
std::vector<int64_t> numbers_of_rows(const std::vector<int64_t>& samples, int64_t per_sample) {
  std::vector<int64_t> numbers;
  for (const int64_t sample : samples)
    for (int64_t row = 0; row < per_sample; ++row) numbers.push_back(sample * per_sample + row);
  return numbers;
}

}  // namespace

RetroModel::RetroModel(const nn::LayerBuilder& builder, const families::RetroConfig& config,
                       const StageOptions& options)
    : config_(config),
      options_(options),
      grid_(builder.grid),
      gather_(builder.gather),
      word_embeddings_(builder, "word_embeddings"),
      final_layernorm_(builder, "final_layernorm", config.gpt.normalization, config.gpt.layernorm_epsilon),
      output_layer_(builder, config.gpt.tie_output ? "word_embeddings" : "lm_head", "", config.gpt.logit_soft_cap) {
  ESPALIER_CHECK(
      config.retrieves && !builder.sequence_parallel && grid_.shape.context == 1 && grid_.shape.pipeline == 1,
      "a Retro over ", spec::to_string(grid_.shape));
  if (config.gpt.embed_layernorm)
    embedding_norm_.emplace(builder, "word_embeddings.norm", spec::Normalization::kLayerNorm, kNormEpsilonOfWords);
  if (config.gpt.position_embedding == families::PositionEmbedding::kLearned)
    position_embeddings_.emplace(builder, "position_embeddings");
  for (int64_t layer = 0; layer < config.gpt.num_layers; ++layer) {
    if (config.retrieves_in(layer))
      layers_.emplace_back(std::in_place_type<RetrievalLayer>, builder, config.retrieval_layers(), layer,
                           config.chunk_length);
    else
      layers_.emplace_back(std::in_place_type<TransformerLayer>, builder, config.layers(), layer);
  }
  encoder_.emplace(builder, config);
}

at::Tensor RetroModel::embed(const at::Tensor& ids, const at::Tensor& positions, const nn::ForwardContext& context,
                             const char* site) const {
  at::Tensor x = word_embeddings_.forward(ids);  // [s, b, h]
  if (embedding_norm_) x = embedding_norm_->forward(x);
  if (position_embeddings_) x = x + position_embeddings_->forward(positions);
  return tensor::observed(site, kernels::dropout(x, context.dropout_site(site)));
}

tensor::AttentionContext RetroModel::attention_context() const {
  tensor::AttentionContext context;
  context.soft_cap = config_.gpt.attn_logit_soft_cap;
  return context;
}

nn::ForwardContext RetroModel::training_context(const pipeline::StageInput& input) const {
  const tensor::Batch& batch = *input.batch;
  nn::ForwardContext context;
  context.attention = attention_context();
  context.attention.first_key = batch.document_starts;
  context.attention.sample_numbers = batch.sample_numbers;
  context.attention.seed = context.seed = options_.seed;
  context.attention.dropout = input.training ? config_.gpt.attention_dropout : 0;
  context.hidden_dropout = input.training ? config_.gpt.hidden_dropout : 0;
  context.sample_numbers = &batch.sample_numbers;
  set_rotary(context, config_.gpt, rotary_tables_, batch.positions, batch.ids.size(1));
  return context;
}

RetroModel::Contexts RetroModel::retrieval_contexts(const pipeline::StageInput& input) const {
  const tensor::Batch& batch = *input.batch;
  const auto tokens = batch.extra.find(kNeighborTokens);
  if (tokens == batch.extra.end()) return nullptr;
  const int64_t l = tokens->second.size(1), k = tokens->second.size(2), r = tokens->second.size(3);
  ESPALIER_CHECK(l * config_.chunk_length == batch.ids.size(1) && k == config_.num_neighbors, l, " chunks with ", k,
                 " neighbours each");
  const auto contexts = std::make_shared<RetrievalContexts>();
  contexts->chunk_numbers = numbers_of_rows(batch.sample_numbers, l);
  contexts->neighbor_numbers = numbers_of_rows(batch.sample_numbers, l * k);
  const auto fill = [&](nn::ForwardContext& context, const std::vector<int64_t>& numbers) {
    context.attention = attention_context();
    context.attention.mask = tensor::AttentionContext::Mask::kFull;
    context.attention.sample_numbers = numbers;
    context.attention.seed = context.seed = options_.seed;
    context.sample_numbers = &numbers;
    context.cross_attention = context.attention;
    context.cross_attention.dropout = input.training ? config_.gpt.attention_dropout : 0;
  };
  fill(contexts->chunks, contexts->chunk_numbers);
  contexts->chunks.hidden_dropout = input.training ? config_.gpt.hidden_dropout : 0;
  // The neighbours that there are come first.
  contexts->chunks.cross_attention.last_key = (batch.extra.at(kNeighborCounts).view({-1, 1}) * r - 1)
                                                  .to(at::kInt)
                                                  .expand({-1, config_.chunk_length})
                                                  .contiguous();
  fill(contexts->neighbors, contexts->neighbor_numbers);
  contexts->neighbors.attention.dropout = input.training ? config_.encoder_attention_dropout : 0;
  contexts->neighbors.hidden_dropout = input.training ? config_.encoder_hidden_dropout : 0;
  const at::Tensor positions = at::arange(r, batch.positions.options()).expand({batch.ids.size(0) * l * k, r});
  set_rotary(contexts->neighbors, config_.gpt, neighbor_rotary_tables_, positions.contiguous(), r);
  return contexts;
}

// Their embedding has the dropout of the GPT's.
at::Tensor RetroModel::encode(const at::Tensor& chunk_states, const tensor::Batch& batch,
                              const RetrievalContexts& retrieval) const {
  const at::Tensor& tokens = batch.extra.at(kNeighborTokens);
  const at::Tensor ids = tokens.view({-1, tokens.size(3)});
  const at::Tensor positions = at::arange(ids.size(1), ids.options()).expand_as(ids).contiguous();
  nn::ForwardContext of_embedding = retrieval.neighbors;
  of_embedding.hidden_dropout = retrieval.chunks.hidden_dropout;
  const at::Tensor x = embed(ids, positions, of_embedding, "retriever.embedding");
  return encoder_->forward(x, to_chunks(chunk_states, config_.chunk_length), retrieval.neighbors);
}

// Each layer, with values that come when it needs them; those of the encoder come with the layer that owns it.
at::Tensor RetroModel::run_layers(at::Tensor x, const nn::ForwardContext& context, const tensor::Batch* batch,
                                  const RetrievalContexts* retrieval) const {
  at::Tensor neighbors;
  static const nn::ForwardContext kNoChunks;
  for (size_t number = 0; number < layers_.size(); ++number) {
    const auto layer = static_cast<int64_t>(number);
    x = dist::before_layer(gather_, layer, x);
    if (const auto* plain = std::get_if<TransformerLayer>(&layers_[number])) {
      x = plain->forward(x, context);
    } else {
      const RetrievalLayer& retrieves = std::get<RetrievalLayer>(layers_[number]);
      const RetrievalLayer::Attended attended = retrieves.self_attend(x, context);
      if (retrieval != nullptr && !neighbors.defined()) neighbors = encode(attended.normed, *batch, *retrieval);
      x = retrieves.finish(attended, neighbors, context, retrieval != nullptr ? retrieval->chunks : kNoChunks);
    }
    x = dist::after_layer(gather_, layer, x);
  }
  return x;
}

at::Tensor RetroModel::stream_of(const tensor::Batch& batch, const nn::ForwardContext& context,
                                 const RetrievalContexts* retrieval) const {
  const at::Tensor x = embed(batch.ids, batch.positions, context, "embedding");
  return final_layernorm_.forward(run_layers(x, context, &batch, retrieval));
}

pipeline::StageOutput RetroModel::forward(const pipeline::StageInput& input) {
  kept_ = retrieval_contexts(input);
  const at::Tensor x = stream_of(*input.batch, training_context(input), kept_.get());
  return {.tensors = {}, .loss = lm_loss(output_layer_, grid_, x, *input.batch)};
}

at::Tensor RetroModel::batch_logits(const tensor::Batch& batch) const {
  const at::NoGradGuard no_grad;
  const pipeline::StageInput input{.batch = &batch, .tensors = {}, .training = false};
  const Contexts retrieval = retrieval_contexts(input);
  return output_layer_.logits(stream_of(batch, training_context(input), retrieval.get())).transpose(0, 1);
}

DecoderShape RetroModel::decoder_shape() const { return gpt_decoder_shape(config_.gpt, grid_.shape.tensor); }

at::Tensor RetroModel::hidden_states(const at::Tensor& ids, const at::Tensor& positions,
                                     const nn::ForwardContext& caller, const Encoded*) const {
  const at::NoGradGuard no_grad;
  nn::ForwardContext context = caller;
  set_rotary(context, config_.gpt, rotary_tables_, positions);
  const at::Tensor x = run_layers(embed(ids, positions, context, "embedding"), context, nullptr, nullptr);
  if (context.attention.cache != nullptr) context.attention.cache->add_to_lengths(ids.size(1));
  return final_layernorm_.forward(x);
}

NeighborShape RetroModel::neighbor_shape() const {
  return {.chunk_length = config_.chunk_length,
          .num_neighbors = config_.num_neighbors,
          .num_retrieved_chunks = config_.num_retrieved_chunks};
}

// Cut before each token that ends a chunk: the pieces attend to one chunk's neighbours each.
at::Tensor RetroModel::read_on(const at::Tensor& ids, const std::vector<ChunkNeighbors>& neighbors,
                               ReadText& text) const {
  const at::NoGradGuard no_grad;
  const int64_t begin = text.cache.lengths.at(0), end = begin + ids.size(1), m = config_.chunk_length;
  ESPALIER_CHECK(static_cast<int64_t>(neighbors.size()) == end / m - begin / m, neighbors.size(),
                 " chunks with neighbours for tokens ", begin, " to ", end);
  std::vector<at::Tensor> pieces;
  for (int64_t first = begin; first < end;) {
    const int64_t next = std::min(end, (first + 1) / m * m + m - 1);
    const bool finishes = (first + 1) % m == 0;
    const ChunkNeighbors* const finished = finishes ? &neighbors[static_cast<size_t>(first / m - begin / m)] : nullptr;
    pieces.push_back(read_within_chunk(ids.narrow(1, first - begin, next - first), finished, text));
    first = next;
  }
  return at::cat(pieces);
}

at::Tensor RetroModel::read_within_chunk(const at::Tensor& ids, const ChunkNeighbors* finished, ReadText& text) const {
  const int64_t first = text.cache.lengths.at(0), count = ids.size(1);
  const at::Tensor positions = at::arange(first, first + count, at::kLong).view({1, -1});
  nn::ForwardContext context, chunks;
  context.attention = attention_context();
  context.attention.cache = &text.cache;
  set_rotary(context, config_.gpt, rotary_tables_, positions);
  at::Tensor x = embed(ids, positions, context, "embedding");
  for (size_t number = 0; number < layers_.size(); ++number) {
    if (const auto* plain = std::get_if<TransformerLayer>(&layers_[number])) {
      x = plain->forward(x, context);
      continue;
    }
    const RetrievalLayer& retrieves = std::get<RetrievalLayer>(layers_[number]);
    const RetrievalLayer::Attended attended = retrieves.self_attend(x, context);
    if (static_cast<int64_t>(number) == config_.first_retrieval_layer()) {
      const at::Tensor states =
          text.open_chunk.defined() ? at::cat({text.open_chunk, attended.normed}) : attended.normed;
      const int64_t of_finished = finished != nullptr ? config_.chunk_length : 0;
      if (finished != nullptr) take_neighbors(states.narrow(0, 0, of_finished), *finished, text);
      text.open_chunk = states.narrow(0, of_finished, states.size(0) - of_finished).clone();
      chunks.cross_attention = attention_context();
      chunks.cross_attention.mask = tensor::AttentionContext::Mask::kFull;
      chunks.cross_attention.cache = &text.cache;
      if (text.neighbors.defined()) chunks.cross_attention.last_key = text.last_key.narrow(1, 0, count).contiguous();
    }
    x = retrieves.finish_within_chunk(attended, text.neighbors, context, chunks);
  }
  text.cache.add_to_lengths(count);
  return final_layernorm_.forward(x);
}

void RetroModel::take_neighbors(const at::Tensor& chunk_states, const ChunkNeighbors& neighbors, ReadText& text) const {
  const int64_t m = config_.chunk_length;
  tensor::Batch chunk;
  chunk.sample_numbers = {0};
  chunk.ids = at::zeros({1, m}, at::kLong);  // nobody looks at them: their states are there
  chunk.positions = chunk.ids;
  chunk.extra[kNeighborTokens] = at::tensor(neighbors.tokens, at::kLong).view({1, 1, config_.num_neighbors, -1});
  chunk.extra[kNeighborCounts] = at::full({1, 1}, neighbors.count, at::kLong);
  const Contexts contexts = retrieval_contexts({.batch = &chunk, .tensors = {}, .training = false});
  text.neighbors = encode(chunk_states.contiguous(), chunk, *contexts);
  text.last_key = contexts->chunks.cross_attention.last_key;
  for (tensor::KeyValueCache::Layer& layer : text.cache.layers) layer.cross = at::Tensor();
}

at::Tensor RetroModel::logits(const at::Tensor& hidden) const { return output_layer_.logits(hidden); }

void RetroModel::visit(tensor::ParamVisitor& visitor) {
  visitor.child("word_embeddings", word_embeddings_);
  if (embedding_norm_) visitor.child("word_embeddings.norm", *embedding_norm_);
  if (position_embeddings_) visitor.child("position_embeddings", *position_embeddings_);
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const std::string name = config_.layers().layer_name(static_cast<int64_t>(layer));
    std::visit([&](auto& of) { visitor.child(name, of); }, layers_[layer]);
    if (static_cast<int64_t>(layer) == config_.first_retrieval_layer()) encoder_->visit(visitor);
  }
  visitor.child("final_layernorm", final_layernorm_);
  if (!config_.gpt.tie_output) visitor.child("lm_head", output_layer_);
}

const FamilyRuntime& retro_runtime() {
  static const FamilyRuntime runtime{
      .family = &families::retro_family(),
      .build = [](const nn::LayerBuilder& builder, const config::RunConfig& run, const plan::DepthRange& depths,
                  const StageOptions& options) -> std::unique_ptr<pipeline::Stage> {
        const families::RetroConfig config = families::retro_config(run);
        if (!config.retrieves) return std::make_unique<GptModel>(builder, config.gpt, depths, options);
        return std::make_unique<RetroModel>(builder, config, options);
      },
      .open_data = open_retro_data,
      .labels_are_text = true,
      .collate = [](const config::RunConfig& run, const text::Tokenizer& tokenizer) -> Collate {
        const data::RowRules rules = rules_of_retro(run, tokenizer);
        if (!families::reads_neighbors(run))
          return [rules](const std::vector<SampleRow>& rows) { return make_gpt_batch(rows, rules); };
        return [rules, k = families::retro_config(run).num_neighbors](const std::vector<SampleRow>& rows) {
          return make_retro_batch(rows, rules, k);
        };
      },
      .build_decoder = [](const nn::LayerBuilder& builder, const config::RunConfig& run) -> std::unique_ptr<Decoder> {
        const families::RetroConfig config = families::retro_config(run);
        if (!config.retrieves) return std::make_unique<GptModel>(builder, config.gpt, StageOptions{});
        return std::make_unique<RetroModel>(builder, config, StageOptions{});
      }};
  return runtime;
}

}  // namespace espalier::models
