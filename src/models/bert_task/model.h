// A BERT finetuned for a task, as Megatron builds it: the encoder, the pooler tanh(dense(.)) of the first token,
// dropout, and a linear head. Rows of one example (the options of a question) get one number each and compete.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "families/bert_task/config.h"
#include "models/bert/encoder.h"
#include "models/build.h"
#include "nn/dense.h"

namespace espalier::models {

// Samples of data::TaskDataset: rows of all of them below each other. Batch::targets: "lm loss", as upstream calls it.
tensor::Batch make_task_batch(const std::vector<SampleRow>& rows, data::FinetuningTask task);

class BertTaskModel : public pipeline::Stage {
 public:
  // The builder's ParamSet holds the parameters and outlives the model, which is a whole one.
  BertTaskModel(const nn::LayerBuilder& builder, const families::BertConfig& config, data::FinetuningTask task,
                const plan::DepthRange& part, const StageOptions& options);

  pipeline::StageOutput forward(const pipeline::StageInput& input) override;
  std::vector<pipeline::TensorShape> input_shapes(const tensor::Batch& batch) const override;
  std::vector<pipeline::TensorShape> output_shapes(const tensor::Batch& batch) const override;
  void visit(tensor::ParamVisitor& visitor) override;

  at::Tensor class_logits(const tensor::Batch& batch) const;  // FamilyRuntime::class_logits

 private:
  at::Tensor head_logits(const at::Tensor& pooled) const;  // [b, h] -> [samples, classes] fp32
  at::Tensor pooled(const at::Tensor& hidden) const;       // [b, h]
  at::Tensor drop(const at::Tensor& pooled, const pipeline::StageInput& input) const;

  data::FinetuningTask task_;
  double dropout_;
  uint64_t seed_;
  const dist::Grid& grid_;
  bool sequence_parallel_;
  BertEncoder encoder_;
  nn::Dense pooler_, head_;
};

const FamilyRuntime& bert_task_runtime();

}  // namespace espalier::models
