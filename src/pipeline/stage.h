// A pipeline stage: a consecutive part of the model, as the schedule sees it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensor/batch.h"
#include "tensor/param.h"

namespace espalier::pipeline {

// One kind of loss, as sum and count, never as a mean: means of means weigh short micro-batches too much.
struct LossTerm {
  std::string name;             // "lm loss"
  at::Tensor sum;               // scalar fp32, carries the graph during training
  at::Tensor count;             // scalar fp32: sum of the loss mask (number of predicted tokens)
  double weight = 1;            // in the sum that is differentiated
  std::string targets_of = {};  // the term whose targets (tensor::Batch) it is a mean over; empty: its own
  // Per row of the micro-batch, without graph: [b] fp32 each. Losses by data set come from these.
  // All of these are of whole sequences: the same on every context and tensor rank.
  at::Tensor row_sums, row_counts;
  // Scalars, where the batch says how much text its labels represent; else undefined. The losses of the labels that
  // represent text (special ids do not), without weights, and the bytes of that text.
  at::Tensor text_sum, text_bytes;
};
using Loss = std::vector<LossTerm>;

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// What goes from a stage to the next.
struct TensorShape {
  std::string name;
  std::vector<int64_t> sizes;
  at::ScalarType type = at::ScalarType::Float;
};

struct StageInput {
  const tensor::Batch* batch = nullptr;
  std::vector<NamedTensor> tensors;  // from the stage before; empty for the first
  bool training = true;              // dropout on
};

struct StageOutput {
  std::vector<NamedTensor> tensors;  // for the next stage; empty for the last
  Loss loss;                         // of the last stage
};

class Stage {
 public:
  virtual ~Stage() = default;
  virtual StageOutput forward(const StageInput& input) = 0;
  // StageInput::tensors for a micro-batch; empty for the first stage.
  virtual std::vector<TensorShape> input_shapes(const tensor::Batch& batch) const = 0;
  // StageOutput::tensors, and so the gradients that come back for them; empty for the last stage.
  virtual std::vector<TensorShape> output_shapes(const tensor::Batch& batch) const = 0;
  virtual void visit(tensor::ParamVisitor& visitor) = 0;
};

}  // namespace espalier::pipeline
