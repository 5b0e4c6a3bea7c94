// NCCL's part of a group: collectives of tensors on the GPU.
#pragma once

#include "dist/device_backend.h"

namespace espalier::cuda {

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
                                            std::chrono::milliseconds timeout);

}  // namespace espalier::cuda
