// Activation recompute: keep the input of a range of layers, run them again in the backward pass (Chen et al. 2016).
//
// Dropout masks are functions of position, so the second run repeats the first without any generator state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "dist/group.h"
#include "plan/recompute.h"

namespace espalier::pipeline {

// `beside`: what all layers of the range read besides x, such as the sequence that a decoder attends to.
using LayerFunction =
    std::function<at::Tensor(int64_t layer, const at::Tensor& x, const std::vector<at::Tensor>& beside)>;

// Runs the layers of one range on x: [S, b, h]; gradients reach x and `beside`. `run` must stay valid until the
// backward pass has been through (it is copied), as must what it refers to. `keepers`: ranks that all have x; of what
// is kept of it for the backward pass each keeps its share, and they gather it there
// (--distribute-checkpointed-activations). The elements of x divide among them.
at::Tensor run_layers(const plan::LayerRange& range, const at::Tensor& x, const LayerFunction& run,
                      const dist::Group& keepers, const std::vector<at::Tensor>& beside = {});

}  // namespace espalier::pipeline
