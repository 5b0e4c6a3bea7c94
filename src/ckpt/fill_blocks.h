// Brings together, in the memory of the rank that writes them, the blocks of a checkpoint.
#pragma once

#include <cstdint>
#include <vector>

#include "ckpt/save_plan.h"
#include "dist/group.h"

namespace espalier::ckpt {

// Fills `buffer` (plan.buffer_bytes) with the blocks of this rank: copies what it holds and exchanges the rest, so
// that afterwards the tensors may change. Collective over `group`; besides the buffer it needs twice 16 MiB.
void fill_blocks(const SavePlan& plan, const std::vector<TensorToSave>& tensors, uint8_t* buffer,
                 const dist::Group& group);

}  // namespace espalier::ckpt
