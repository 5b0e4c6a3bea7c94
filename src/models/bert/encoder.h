// The part of a BERT that its heads share: embeddings, layers in which every token sees all others but padding, and the
// final layer norm.
//
// Legend: s sequence, b micro-batch, h hidden; S the rows of the sequence that this process holds between layers (s/cp,
// with sequence parallelism s/cp/tp).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "families/bert/config.h"
#include "models/build.h"
#include "models/transformer_stack.h"
#include "nn/embedding.h"
#include "nn/norm.h"
#include "pipeline/stage.h"
#include "plan/partition.h"

namespace espalier::models {

class BertEncoder {
 public:
  // The depths `part` of the model. The builder's ParamSet holds their parameters, and with its grid outlives them.
  BertEncoder(const nn::LayerBuilder& builder, const families::BertConfig& config, const plan::DepthRange& part,
              const StageOptions& options);

  bool is_first() const { return word_embeddings_.has_value(); }
  bool is_last() const { return final_layernorm_.has_value(); }
  // Between parts goes "hidden", [S, b, h].
  std::vector<pipeline::TensorShape> input_shapes(const tensor::Batch& batch) const;
  std::vector<pipeline::TensorShape> output_shapes(const tensor::Batch& batch) const;

  // [S, b, h], of the last part after the norm.
  at::Tensor forward(const pipeline::StageInput& input) const;
  // Of a whole model, each layer once; without dropout and graph.
  at::Tensor forward_plain(const tensor::Batch& batch) const;

  bool has_first_token(const tensor::Batch& batch) const { return layers_.local_rows(batch.ids.size(1)).first == 0; }
  // A loss of the first token of each sample, from `losses` [b] that were computed from hidden[0], and
  // weights [b] of the samples.
  //
  // Every process computes them from the first row that it has, so that all of them use the same parameters equally
  // often; what those without the first token find has the factor 0.
  pipeline::LossTerm first_token_loss(const std::string& name, const at::Tensor& losses, const at::Tensor& weights,
                                      const tensor::Batch& batch) const;

  void visit(tensor::ParamVisitor& visitor);

 private:
  std::string name(const char* part) const { return config_.tower.prefix + part; }
  nn::ForwardContext context_of(const pipeline::StageInput& input) const;
  at::Tensor embed(const tensor::Batch& batch, const nn::ForwardContext& context) const;

  families::BertConfig config_;
  const dist::Grid& grid_;
  bool sequence_parallel_;
  // The first part's.
  std::optional<nn::VocabularyEmbedding> word_embeddings_;
  std::optional<nn::PositionEmbedding> position_embeddings_, tokentype_embeddings_;
  TransformerStack layers_;
  std::optional<nn::Norm> final_layernorm_;  // the last part's
};

}  // namespace espalier::models
