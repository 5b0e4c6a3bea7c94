// Many small tensors of the host to a device as one copy, which nobody waits for.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace espalier::tensor {

// The same values on `device`, in one block of its memory. They leave from page-locked memory, which libtorch gives to
// no one else before the copy is done, so the tensors of the host may change at once.
std::vector<at::Tensor> copy_as_block(const std::vector<at::Tensor>& on_host, at::Device device);

}  // namespace espalier::tensor
