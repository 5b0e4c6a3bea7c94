// "lm loss", and also "z loss" if there is one: the cross-entropy of predicted tokens, of an output layer over
// the vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include "dist/grid.h"
#include "nn/output_layer.h"
#include "pipeline/stage.h"

namespace espalier::models {

// Where the batch has kDrawnLabels (models/data.h) the labels are drawn from the logits instead, and there is no z
// loss.
//
// x: [S, b, h], what the output layer takes; labels and loss mask: the batch's. The term is of whole sequences. What it
// is a mean over is the sum of the loss mask, or where the batch has kRowTargets (models/data.h) the sum of those.
pipeline::Loss lm_loss(const nn::OutputLayer& output_layer, const dist::Grid& grid, const at::Tensor& x,
                       const tensor::Batch& batch);

}  // namespace espalier::models
