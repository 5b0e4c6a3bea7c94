// What the CUDA plugin computes for the ops of src/kernels.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device_ops.h"

namespace espalier::cuda {

// Logits of all tokens that exist at a time, in the compute type.
inline constexpr int64_t kLogitBytes = 256 << 20;

const kernels::DeviceOps& ops();
// The same with another limit of logits: small ones are divided in tests.
std::unique_ptr<kernels::DeviceOps> make_ops(int64_t logit_bytes);

}  // namespace espalier::cuda
