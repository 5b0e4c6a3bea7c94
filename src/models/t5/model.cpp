#include "models/t5/model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/error.h"
#include "data/sentence_dataset.h"
#include "kernels/dropout.h"
#include "models/lm_loss.h"
#include "models/t5/batch.h"
#include "models/t5/probe.h"

namespace espalier::models {
namespace {

constexpr const char* kHidden = "hidden";
constexpr const char* kEncoded = "encoded";

at::Tensor tensor_named(const pipeline::StageInput& input, const std::string& name) {
  for (const pipeline::NamedTensor& tensor : input.tensors)
    if (tensor.name == name) return tensor.tensor;
  return {};
}

data::SentenceVocabulary t5_vocabulary(const text::Tokenizer& tokenizer) {
  Problems problems;
  data::SentenceVocabulary vocabulary = data::SentenceVocabulary::make(tokenizer, data::SentenceModel::kT5, problems);
  problems.raise();
  return vocabulary;
}

}  // namespace

T5Model::T5Model(const nn::LayerBuilder& builder, const families::T5Config& config, const plan::DepthRange& part,
                 const StageOptions& options)
    : config_(config),
      part_(part),
      grid_(builder.grid),
      encoder_(builder, config.encoder(), part, options),
      decoder_(builder, config.decoder(), part, options) {
  if (part.contains(0) || part.contains(config.decoder_depth())) {
    word_embeddings_.emplace(builder, "word_embeddings");
    if (config.positions == families::T5Positions::kLearned)
      position_embeddings_.emplace(builder, "position_embeddings");
  }
  if (config.positions == families::T5Positions::kRelative) {
    const auto add_bias = [&](std::optional<nn::RelativePositionBias>& bias, const TransformerStack& stack,
                              const std::string& prefix, bool is_encoder) {
      if (!stack.empty())
        bias.emplace(builder, prefix + "relative_attention_bias", config.relative_attention_max_distance, is_encoder);
    };
    add_bias(encoder_bias_, encoder_, "encoder.", true);
    add_bias(decoder_bias_, decoder_, "decoder.", false);
  }
  if (part.contains(config.num_layers))
    encoder_final_layernorm_.emplace(builder, "encoder.final_layernorm", config.normalization,
                                     config.layernorm_epsilon);
  if (!part.contains(config.last_depth())) return;
  decoder_final_layernorm_.emplace(builder, "decoder.final_layernorm", config.normalization, config.layernorm_epsilon);
  output_layer_.emplace(builder, config.tie_output ? "word_embeddings" : "lm_head",
                        config.add_bias_linear ? "lm_head.bias" : "");
}

// What passes to that depth from the one before it.
std::vector<pipeline::TensorShape> T5Model::shapes_before(int64_t depth, const tensor::Batch& batch) const {
  if (depth == 0 || depth > config_.last_depth()) return {};
  const int64_t length = batch.extra.at(kEncoderIds).size(1);
  if (depth < config_.decoder_depth()) return {encoder_.hidden_shape(kHidden, batch, length)};
  const pipeline::TensorShape encoded = encoder_.hidden_shape(kEncoded, batch, length);
  if (depth == config_.decoder_depth()) return {encoded};
  return {decoder_.hidden_shape(kHidden, batch), encoded};
}

std::vector<pipeline::TensorShape> T5Model::input_shapes(const tensor::Batch& batch) const {
  return shapes_before(part_.begin, batch);
}

std::vector<pipeline::TensorShape> T5Model::output_shapes(const tensor::Batch& batch) const {
  return shapes_before(part_.end, batch);
}

at::Tensor T5Model::embed(const at::Tensor& ids, const at::Tensor& positions, const nn::ForwardContext& context,
                          const char* site) const {
  const SequenceRows local = encoder_.local_rows(ids.size(1));
  at::Tensor x = word_embeddings_->forward(ids);
  if (position_embeddings_) x = x + position_embeddings_->forward(local.of(positions));
  return kernels::dropout(x, context.dropout_site(site));
}

BesideStream T5Model::beside_encoder(int64_t length) const {
  return {.encoded = {}, .relative_bias = encoder_bias_ ? encoder_bias_->forward(length) : at::Tensor()};
}

BesideStream T5Model::beside_decoder(int64_t length, const at::Tensor& encoded) const {
  return {.encoded = encoded, .relative_bias = decoder_bias_ ? decoder_bias_->forward(length) : at::Tensor()};
}

// Of all attention of the model.
tensor::AttentionContext T5Model::attention_context() const {
  tensor::AttentionContext attention;
  if (!config_.scale_attention) attention.scale = 1;
  return attention;
}

// What the output layer multiplies.
at::Tensor T5Model::before_output(const at::Tensor& hidden) const {
  const at::Tensor x = decoder_final_layernorm_->forward(hidden);
  return config_.scale_tied_output ? x / std::sqrt(static_cast<double>(config_.hidden_size)) : x;
}

at::Tensor T5Model::logits(const at::Tensor& hidden) const { return output_layer_->logits(hidden); }

T5Model::Context T5Model::encoder_context(const pipeline::StageInput& input) const {
  tensor::AttentionContext attention = attention_context();
  attention.mask = tensor::AttentionContext::Mask::kFull;
  attention.last_key = input.batch->extra.at(kEncoderLastKeys);
  return std::make_shared<const nn::ForwardContext>(encoder_.training_context(
      input, attention, {.hidden = config_.hidden_dropout, .attention = config_.attention_dropout},
      input.batch->extra.at(kEncoderIds).size(1)));
}

T5Model::Context T5Model::decoder_context(const pipeline::StageInput& input) const {
  const auto context = std::make_shared<nn::ForwardContext>(decoder_.training_context(
      input, attention_context(), {.hidden = config_.hidden_dropout, .attention = config_.attention_dropout}));
  context->cross_attention = context->attention;
  context->cross_attention.mask = tensor::AttentionContext::Mask::kFull;
  context->cross_attention.last_key = input.batch->extra.at(kCrossLastKeys);
  return context;
}

pipeline::StageOutput T5Model::forward(const pipeline::StageInput& input) {
  const tensor::Batch& batch = *input.batch;
  const int64_t decoder_depth = config_.decoder_depth();
  at::Tensor x = tensor_named(input, kHidden), encoded = tensor_named(input, kEncoded);
  ESPALIER_CHECK(input.tensors.size() == input_shapes(batch).size(), input.tensors.size(),
                 " tensors for a part of a T5");
  if (part_.begin < decoder_depth) {
    const Context context = encoder_context(input);
    if (part_.contains(0))
      x = embed(batch.extra.at(kEncoderIds), batch.extra.at(kEncoderPositions), *context, "embedding");
    x = encoder_.forward(x, context, beside_encoder(batch.extra.at(kEncoderIds).size(1)));
    if (encoder_final_layernorm_) encoded = encoder_final_layernorm_->forward(x);
  }
  if (part_.end > decoder_depth) {
    const Context context = decoder_context(input);
    if (part_.contains(decoder_depth)) x = embed(batch.ids, batch.positions, *context, "decoder.embedding");
    x = decoder_.forward(x, context, beside_decoder(batch.ids.size(1), encoded));
  }
  if (output_layer_) return {.tensors = {}, .loss = lm_loss(*output_layer_, grid_, before_output(x), batch)};
  if (part_.end < decoder_depth) return {.tensors = {{kHidden, x}}, .loss = {}};
  if (part_.end == decoder_depth) return {.tensors = {{kEncoded, encoded}}, .loss = {}};
  return {.tensors = {{kHidden, x}, {kEncoded, encoded}}, .loss = {}};
}

DecoderShape T5Model::decoder_shape() const {
  return {.first_layer = config_.num_layers,
          .num_layers = config_.total_layers(),
          .num_groups = config_.num_attention_heads / grid_.shape.tensor,
          .head_size = config_.kv_channels,
          .vocab_size = config_.vocab_size,
          .max_positions = config_.positions == families::T5Positions::kLearned ? config_.max_position_embeddings : 0};
}

Encoded T5Model::encode(const at::Tensor& ids, const std::vector<int64_t>& lengths) const {
  const at::NoGradGuard no_grad;
  const at::Tensor positions = at::arange(ids.size(1), ids.options()).expand_as(ids).contiguous();
  nn::ForwardContext context{.attention = attention_context()};
  context.attention.mask = tensor::AttentionContext::Mask::kFull;
  const at::Tensor ends = at::tensor(lengths, at::kLong).view({-1, 1}).to(ids.device());
  context.attention.last_key = at::where(positions < ends, ends - 1, -1).to(at::kInt).contiguous();
  const at::Tensor x =
      encoder_.forward_plain(embed(ids, positions, context, "embedding"), context, beside_encoder(ids.size(1)));
  return {encoder_final_layernorm_->forward(x), lengths};
}

std::vector<at::Tensor> T5Model::cross_keys_and_values(const Encoded& encoded) const {
  const at::NoGradGuard no_grad;
  return decoder_.keys_and_values(encoded.hidden);
}

// The context has the pages of both attentions.
at::Tensor T5Model::paged_hidden_states(const at::Tensor& ids, const at::Tensor& positions,
                                        const nn::ForwardContext& caller) const {
  tensor::PagedKeyValues* const read = caller.cross_attention.pages;
  ESPALIER_CHECK(read != nullptr, "a T5's decoder without what the encoder has read");
  nn::ForwardContext context = caller;
  context.cross_attention = attention_context();
  context.cross_attention.pages = read;
  return before_output(decoder_.forward_plain(embed(ids, positions, context, "decoder.embedding"), context,
                                              beside_decoder(caller.attention.pages->capacity, {})));
}

at::Tensor T5Model::hidden_states(const at::Tensor& ids, const at::Tensor& positions, const nn::ForwardContext& caller,
                                  const Encoded* encoded) const {
  const at::NoGradGuard no_grad;
  if (caller.attention.pages != nullptr) return paged_hidden_states(ids, positions, caller);
  ESPALIER_CHECK(encoded != nullptr, "a T5's decoder without what the encoder has read");
  nn::ForwardContext context = caller;
  context.cross_attention = attention_context();
  context.cross_attention.mask = tensor::AttentionContext::Mask::kFull;
  context.cross_attention.last_key =
      (at::tensor(encoded->lengths, at::kInt).view({-1, 1}) - 1).expand(ids.sizes()).contiguous();
  context.cross_attention.cache = caller.attention.cache;
  const tensor::KeyValueCache* const cache = caller.attention.cache;
  const at::Tensor x =
      decoder_.forward_plain(embed(ids, positions, context, "decoder.embedding"), context,
                             beside_decoder(cache != nullptr ? cache->capacity : ids.size(1), encoded->hidden));
  if (context.attention.cache != nullptr) context.attention.cache->add_to_lengths(ids.size(1));
  return before_output(x);
}

void T5Model::visit(tensor::ParamVisitor& visitor) {
  if (word_embeddings_) visitor.child("word_embeddings", *word_embeddings_);
  if (position_embeddings_) visitor.child("position_embeddings", *position_embeddings_);
  if (encoder_bias_) visitor.child("encoder.relative_attention_bias", *encoder_bias_);
  encoder_.visit(visitor);
  if (encoder_final_layernorm_) visitor.child("encoder.final_layernorm", *encoder_final_layernorm_);
  if (decoder_bias_) visitor.child("decoder.relative_attention_bias", *decoder_bias_);
  decoder_.visit(visitor);
  if (!output_layer_) return;
  visitor.child("decoder.final_layernorm", *decoder_final_layernorm_);
  if (!config_.tie_output) visitor.child("lm_head", *output_layer_);
  // A tied output is the word embedding again; only where that is elsewhere is it this part's own.
  if (config_.tie_output && !word_embeddings_) visitor.child("word_embeddings", *output_layer_);
  if (output_layer_->bias() != nullptr) visitor.param("lm_head.bias", *output_layer_->bias());
}

const FamilyRuntime& t5_runtime() {
  static const FamilyRuntime runtime{
      .family = &families::t5_family(),
      .build = [](const nn::LayerBuilder& builder, const config::RunConfig& run, const plan::DepthRange& depths,
                  const StageOptions& options) -> std::unique_ptr<pipeline::Stage> {
        return std::make_unique<T5Model>(builder, families::t5_config(run), depths, options);
      },
      .open_data =
          [](const data::DataSetOptions& options, const config::RunConfig& run, const text::Tokenizer& tokenizer) {
            data::SentenceSampleOptions samples = families::t5_samples(run);
            samples.vocabulary = t5_vocabulary(tokenizer);
            return as_sources(data::SentenceDataSets::open(options, samples));
          },
      .collate = [](const config::RunConfig&, const text::Tokenizer& tokenizer) -> Collate {
        return [pad = t5_vocabulary(tokenizer).pad](const std::vector<SampleRow>& rows) {
          return make_t5_batch(rows, pad);
        };
      },
      .build_decoder = [](const nn::LayerBuilder& builder, const config::RunConfig& run) -> std::unique_ptr<Decoder> {
        const families::T5Config config = families::t5_config(run);
        return std::make_unique<T5Model>(builder, config, plan::DepthRange{0, config.last_depth() + 1}, StageOptions{});
      },
      .text_ends =
          [](const text::Tokenizer& tokenizer) {
            const data::SentenceVocabulary vocabulary = t5_vocabulary(tokenizer);
            return TextEnds{.begin = vocabulary.bos, .end = vocabulary.eos};
          },
      .probe = &kT5Probe};
  return runtime;
}

}  // namespace espalier::models
