// Where this thread's work goes.
#pragma once

#include <c10/core/Device.h>

#include "kernels/cuda/launch.h"

namespace espalier::cuda {

Stream current_stream();
at::Device current_device();

}  // namespace espalier::cuda
