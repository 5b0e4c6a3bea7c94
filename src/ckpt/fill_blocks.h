// Brings together, in the memory of the rank that writes them, what it writes and cannot read where it is: what other
// ranks hold, or a device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ckpt/save_plan.h"
#include "dist/group.h"

namespace espalier::ckpt {

// Where this rank's tensors are.
at::Device device_of(const std::vector<TensorToSave>& tensors);

// Fills `buffer` (plan.buffer_bytes), and gives the others what they write of this rank's: both may change afterwards.
// Collective over `group`; besides the buffer it needs twice 16 MiB.
void fill_blocks(const SavePlan& plan, const std::vector<TensorToSave>& tensors, uint8_t* buffer,
                 const dist::Group& group);

}  // namespace espalier::ckpt
