// GPT (Radford et al. 2019) as Megatron builds it: pre-norm blocks; BLOOM (Le Scao et al. 2022) is this with ALiBi and
// a layer norm after the embedding.
//
// Legend: s sequence, b micro-batch, h hidden, V padded vocabulary; S the rows of the sequence that this process holds
// between layers (s/cp, with sequence parallelism s/cp/tp).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "families/gpt/config.h"
#include "models/build.h"
#include "models/transformer_stack.h"
#include "nn/embedding.h"
#include "nn/norm.h"
#include "nn/output_layer.h"
#include "nn/rotary.h"
#include "pipeline/stage.h"
#include "plan/partition.h"

namespace espalier::models {

// Gives a context what rotary positions need, if the model has them: [b, s] `positions` of sequences of at most
// `sequence_length`, or of those of the context's cache or pages and otherwise of s.
void set_rotary(nn::ForwardContext& context, const families::GptConfig& config, const nn::RotaryTables& tables,
                const at::Tensor& positions, int64_t sequence_length);
void set_rotary(nn::ForwardContext& context, const families::GptConfig& config, const nn::RotaryTables& tables,
                const at::Tensor& positions);

// What a cache must hold of such layers, on one of `tensor_ranks`.
DecoderShape gpt_decoder_shape(const families::GptConfig& config, int64_t tensor_ranks);

// A consecutive part of the model, or all of it.
class GptModel : public pipeline::Stage, public Decoder {
 public:
  using Options = StageOptions;
  // The depths `part` of the model. The builder's ParamSet holds their parameters and outlives the model.
  GptModel(const nn::LayerBuilder& builder, const families::GptConfig& config, const plan::DepthRange& part,
           const Options& options);
  // The whole model.
  GptModel(const nn::LayerBuilder& builder, const families::GptConfig& config, const Options& options)
      : GptModel(builder, config, {0, config.num_layers + 2}, options) {}

  // Between parts goes "hidden", [S, b, h]. The last part gives one loss term, "lm loss".
  pipeline::StageOutput forward(const pipeline::StageInput& input) override;
  std::vector<pipeline::TensorShape> input_shapes(const tensor::Batch& batch) const override;
  std::vector<pipeline::TensorShape> output_shapes(const tensor::Batch& batch) const override;
  void visit(tensor::ParamVisitor& visitor) override;

  // With a whole model.
  DecoderShape decoder_shape() const override;
  at::Tensor hidden_states(const at::Tensor& ids, const at::Tensor& positions, const nn::ForwardContext& context,
                           const Encoded* encoded = nullptr) const override;
  at::Tensor logits(const at::Tensor& hidden) const override;
  tensor::AttentionContext attention_context() const override;
  bool bring_layers(LayerSource& source) override {
    layers_.set_source(&source);
    return true;
  }

 private:
  // [b, s/cp] ids and [b, S] positions -> [S, b, h]
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions, const nn::ForwardContext& context) const;
  at::Tensor last_hidden(const at::Tensor& x) const;  // normed, as the output layer takes it
  nn::ForwardContext training_context(const pipeline::StageInput& input) const;

  families::GptConfig config_;
  const dist::Grid& grid_;
  at::Tensor alibi_slopes_;         // [heads] fp32, undefined without ALiBi
  nn::RotaryTables rotary_tables_;  // of models with rotary positions
  // The first part's.
  std::optional<nn::VocabularyEmbedding> word_embeddings_;
  std::optional<nn::Norm> embedding_norm_;
  std::optional<nn::PositionEmbedding> position_embeddings_;
  TransformerStack layers_;
  // The last part's.
  std::optional<nn::Norm> final_layernorm_;
  std::optional<nn::OutputLayer> output_layer_;
};

const FamilyRuntime& gpt_runtime();

}  // namespace espalier::models
