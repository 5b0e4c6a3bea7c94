// Where this thread's work goes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "kernels/cuda/launch.h"

namespace espalier::cuda {

Stream current_stream();
at::Device current_device();
int64_t device_bytes();  // of memory, in use or not

// Whether tensor cores take fp8.
bool multiplies_fp8();

// Host memory that the device copies from by itself, for which nobody waits: uint8.
at::Tensor pinned_bytes(int64_t count);

}  // namespace espalier::cuda
