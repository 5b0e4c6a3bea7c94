// What the CUDA plugin computes for the ops of src/kernels.
#pragma once

#include "kernels/device_ops.h"

namespace espalier::cuda {

const kernels::DeviceOps& ops();

}  // namespace espalier::cuda
