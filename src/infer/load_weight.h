// One set of a checkpoint's weights, parameter by parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ckpt/loader.h"

namespace espalier::infer {

// Which of a checkpoint's weights; the moving average is that of train --ema.
enum class WeightSet { kWeights, kEma };

// Into destinations of the compute type, by the parameters' names. An average is fp32, and is rounded. What goes to
// another device is in the memory of this machine one parameter at a time.
void load_weights_of(ckpt::LoadedCheckpoint& checkpoint, const std::vector<ckpt::TensorRequest>& requests,
                     WeightSet set);

}  // namespace espalier::infer
