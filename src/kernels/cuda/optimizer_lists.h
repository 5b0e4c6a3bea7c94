// The optimizer's lists of tensors on the device.
#pragma once

#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/optimizer_update.h"

namespace espalier::cuda {

// Values are of `type`.
void update_all(const spec::OptimizerKind& kind, Element type, const std::vector<kernels::OptimizerUpdate>& updates);
std::vector<kernels::Measured> measure_all(const std::vector<kernels::Measure>& of);

}  // namespace espalier::cuda
