// Retro (Borgeaud et al. 2022) as Megatron builds it: a GPT of which some layers attend to the neighbours of the chunk
// before (retrieval_layer.h). Without neighbours it is the GPT of its weights: those layers then add nothing of them.
// As a Decoder it reads none, as a NeighborReader it does.
//
// What a token's logits depend on: the tokens up to it, and the neighbours of the chunks that end at it or before. So
// the neighbours of chunk u change no logit before that of the chunk's last token, which predicts the first token of
// chunk u + 1.
//
// Legend: s sequence of l chunks of m tokens, b micro-batch, h hidden; k neighbours of a chunk, of r tokens each.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "families/retro/config.h"
#include "models/build.h"
#include "models/neighbor_reader.h"
#include "models/retro/retrieval_layer.h"
#include "models/transformer_stack.h"
#include "nn/embedding.h"
#include "nn/norm.h"
#include "nn/output_layer.h"
#include "nn/rotary.h"
#include "pipeline/stage.h"

namespace espalier::models {

// The whole model, of a shape that retrieves: it is not divided into pipeline stages.
class RetroModel : public pipeline::Stage, public Decoder, public NeighborReader {
 public:
  // The builder's ParamSet holds the parameters and outlives the model.
  RetroModel(const nn::LayerBuilder& builder, const families::RetroConfig& config, const StageOptions& options);

  // The batch is make_retro_batch's, or make_gpt_batch's: then without neighbours. Gives one loss term, "lm loss".
  pipeline::StageOutput forward(const pipeline::StageInput& input) override;
  std::vector<pipeline::TensorShape> input_shapes(const tensor::Batch&) const override { return {}; }
  std::vector<pipeline::TensorShape> output_shapes(const tensor::Batch&) const override { return {}; }
  void visit(tensor::ParamVisitor& visitor) override;

  // Of a whole batch with its neighbours, without graph and dropout: [b, s, V/tp] fp32.
  at::Tensor batch_logits(const tensor::Batch& batch) const;

  // Without neighbours.
  DecoderShape decoder_shape() const override;
  at::Tensor hidden_states(const at::Tensor& ids, const at::Tensor& positions, const nn::ForwardContext& context,
                           const Encoded* encoded = nullptr) const override;
  at::Tensor logits(const at::Tensor& hidden) const override;
  tensor::AttentionContext attention_context() const override;

  const NeighborReader* neighbor_reader() const override { return this; }
  NeighborShape neighbor_shape() const override;
  at::Tensor read_on(const at::Tensor& ids, const std::vector<ChunkNeighbors>& neighbors,
                     ReadText& text) const override;

 private:
  using Contexts = std::shared_ptr<const RetrievalContexts>;

  // [b, s] ids at `positions` -> [s, b, h]; `site` names the dropout.
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions, const nn::ForwardContext& context,
                   const char* site) const;
  nn::ForwardContext training_context(const pipeline::StageInput& input) const;
  at::Tensor stream_of(const tensor::Batch& batch, const nn::ForwardContext& context,
                       const RetrievalContexts* retrieval) const;  // -> [s, b, h], normed
  // Null where the batch has no neighbours.
  Contexts retrieval_contexts(const pipeline::StageInput& input) const;
  at::Tensor run_layers(at::Tensor x, const nn::ForwardContext& context, const tensor::Batch* batch,
                        const RetrievalContexts* retrieval) const;
  at::Tensor encode(const at::Tensor& chunk_states, const tensor::Batch& batch,
                    const RetrievalContexts& retrieval) const;
  // Tokens that attend to the same neighbours, the next of the text; `finished`: of the chunk that the first of them
  // ends, or null where it ends none. -> [s, 1, h], normed.
  at::Tensor read_within_chunk(const at::Tensor& ids, const ChunkNeighbors* finished, ReadText& text) const;
  // Of a chunk whose states are [m, 1, h], for `text` to attend to.
  void take_neighbors(const at::Tensor& chunk_states, const ChunkNeighbors& neighbors, ReadText& text) const;

  families::RetroConfig config_;
  StageOptions options_;
  const dist::Grid& grid_;
  dist::LayerGather* gather_;
  nn::RotaryTables rotary_tables_, neighbor_rotary_tables_;
  nn::VocabularyEmbedding word_embeddings_;
  std::optional<nn::Norm> embedding_norm_;
  std::optional<nn::PositionEmbedding> position_embeddings_;
  std::vector<std::variant<TransformerLayer, RetrievalLayer>> layers_;
  std::optional<NeighborEncoder> encoder_;
  nn::Norm final_layernorm_;
  nn::OutputLayer output_layer_;
  // Of the last forward pass: dropout reads the numbers of its rows until its backward pass is through, which in a
  // single stage comes before the next forward pass.
  Contexts kept_;
};

const FamilyRuntime& retro_runtime();

}  // namespace espalier::models
