// What the CUDA plugin computes for the ops of src/kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "kernels/device_ops.h"

namespace espalier::cuda {

// Logits of all tokens that exist at a time, in the compute type, on a device with so much memory: more save products
// that would be computed again.
inline int64_t logit_bytes_of(int64_t device_bytes) {
  return std::clamp<int64_t>(device_bytes / 64, int64_t{256} << 20, int64_t{1} << 30);
}

const kernels::DeviceOps& ops();
// The same with another limit of logits: small ones are divided in tests.
std::unique_ptr<kernels::DeviceOps> make_ops(int64_t logit_bytes);

}  // namespace espalier::cuda
