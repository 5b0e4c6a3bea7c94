// BERT (Devlin et al. 2018) as Megatron builds it: pre-norm blocks in which every token sees all others but padding; a
// head that predicts masked words, and one that predicts whether the two halves of a sample were swapped (sentence
// order; Lan et al. 2019).
//
// Legend: s sequence, b micro-batch, h hidden; S the rows of the sequence that this process holds between layers (s/cp,
// with sequence parallelism s/cp/tp).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "families/bert/config.h"
#include "models/bert/encoder.h"
#include "models/build.h"
#include "nn/dense.h"
#include "nn/norm.h"
#include "nn/output_layer.h"
#include "pipeline/stage.h"
#include "plan/partition.h"

namespace espalier::models {

// Logits of masked words: layernorm(gelu(dense(x))) times the word embeddings, plus a bias for each word.
class BertLmHead {
 public:
  BertLmHead(const nn::LayerBuilder& builder, const families::BertConfig& config);
  at::Tensor transform(const at::Tensor& x) const;  // [S, b, h] -> [S, b, h], what output() takes
  const nn::OutputLayer& output() const { return output_; }
  void visit(tensor::ParamVisitor& visitor);  // without the word embeddings

 private:
  nn::Dense dense_;
  nn::Norm layernorm_;
  nn::OutputLayer output_;
  spec::Activation activation_;
};

// A consecutive part of the model, or all of it.
class BertModel : public pipeline::Stage {
 public:
  // The depths `part` of the model. The builder's ParamSet holds their parameters and outlives the model.
  BertModel(const nn::LayerBuilder& builder, const families::BertConfig& config, const plan::DepthRange& part,
            const StageOptions& options);

  // Between parts goes "hidden", [S, b, h]. The last part gives the terms "lm loss" and, with a binary head, "sop
  // loss". The batch is make_bert_batch's.
  pipeline::StageOutput forward(const pipeline::StageInput& input) override;
  std::vector<pipeline::TensorShape> input_shapes(const tensor::Batch& batch) const override;
  std::vector<pipeline::TensorShape> output_shapes(const tensor::Batch& batch) const override;
  void visit(tensor::ParamVisitor& visitor) override;

  // Of a whole model, without dropout: fp32, without graph.
  struct Logits {
    at::Tensor words;  // [b, s, V]
    at::Tensor order;  // [b, 2]; undefined without a binary head
  };
  Logits logits(const tensor::Batch& batch) const;

 private:
  at::Tensor order_logits(const at::Tensor& hidden) const;  // [b, 2] fp32
  pipeline::LossTerm sentence_order_loss(const at::Tensor& hidden, const tensor::Batch& batch) const;

  const dist::Grid& grid_;
  BertEncoder encoder_;
  // The last part's.
  std::optional<BertLmHead> lm_head_;
  std::optional<nn::Dense> pooler_, binary_head_;
};

const FamilyRuntime& bert_runtime();

}  // namespace espalier::models
