// T5 (Raffel et al. 2020) as Megatron builds it: an encoder in which every token sees all others but padding, and a
// causal decoder whose layers attend to the encoder's result as well. Words are one table for both and for the output.
//
// Legend: s sequence of the encoder, d of the decoder, b micro-batch, h hidden; S, D the rows of them that this process
// holds between layers (with sequence parallelism s/tp, d/tp).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "families/t5/config.h"
#include "models/build.h"
#include "models/transformer_stack.h"
#include "nn/embedding.h"
#include "nn/norm.h"
#include "nn/output_layer.h"
#include "nn/relative_position_bias.h"
#include "pipeline/stage.h"
#include "plan/partition.h"

namespace espalier::models {

// A consecutive part of the model, or all of it.
class T5Model : public pipeline::Stage, public Decoder {
 public:
  // The depths `part` of the model. The builder's ParamSet holds their parameters and outlives the model.
  T5Model(const nn::LayerBuilder& builder, const families::T5Config& config, const plan::DepthRange& part,
          const StageOptions& options);

  // Between parts goes "hidden", [S, b, h] or [D, b, h], and from the encoder's end on "encoded", [S, b, h], which the
  // decoder's parts pass on. The last part gives the term "lm loss". The batch is make_t5_batch's.
  pipeline::StageOutput forward(const pipeline::StageInput& input) override;
  std::vector<pipeline::TensorShape> input_shapes(const tensor::Batch& batch) const override;
  std::vector<pipeline::TensorShape> output_shapes(const tensor::Batch& batch) const override;
  void visit(tensor::ParamVisitor& visitor) override;

  // A whole model to generate with.
  DecoderShape decoder_shape() const override;
  Encoded encode(const at::Tensor& ids, const std::vector<int64_t>& lengths) const override;
  std::vector<at::Tensor> cross_keys_and_values(const Encoded& encoded) const override;
  at::Tensor hidden_states(const at::Tensor& ids, const at::Tensor& positions, const nn::ForwardContext& context,
                           const Encoded* encoded) const override;
  at::Tensor logits(const at::Tensor& hidden) const override;
  tensor::AttentionContext attention_context() const override;
  bool bring_layers(LayerSource& source) override {
    encoder_.set_source(&source);
    decoder_.set_source(&source);
    return true;
  }

 private:
  using Context = std::shared_ptr<const nn::ForwardContext>;

  std::vector<pipeline::TensorShape> shapes_before(int64_t depth, const tensor::Batch& batch) const;
  at::Tensor paged_hidden_states(const at::Tensor& ids, const at::Tensor& positions,
                                 const nn::ForwardContext& caller) const;
  at::Tensor before_output(const at::Tensor& hidden) const;
  Context encoder_context(const pipeline::StageInput& input) const;
  Context decoder_context(const pipeline::StageInput& input) const;
  // What the layers read besides their stream; `length`: keys of the longest row.
  BesideStream beside_encoder(int64_t length) const;
  BesideStream beside_decoder(int64_t length, const at::Tensor& encoded) const;
  // [b, n] ids at `positions` -> [N, b, h]; `site` names the dropout.
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions, const nn::ForwardContext& context,
                   const char* site) const;

  families::T5Config config_;
  plan::DepthRange part_;
  const dist::Grid& grid_;
  // Of the parts that begin the encoder or the decoder.
  std::optional<nn::VocabularyEmbedding> word_embeddings_;
  std::optional<nn::PositionEmbedding> position_embeddings_;
  std::optional<nn::RelativePositionBias> encoder_bias_, decoder_bias_;  // of parts with layers of that stack
  TransformerStack encoder_, decoder_;
  std::optional<nn::Norm> encoder_final_layernorm_;  // of the part that ends the encoder
  // The last part's.
  std::optional<nn::Norm> decoder_final_layernorm_;
  std::optional<nn::OutputLayer> output_layer_;
};

const FamilyRuntime& t5_runtime();

}  // namespace espalier::models
