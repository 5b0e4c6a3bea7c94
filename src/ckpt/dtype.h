// libtorch's element types and the checkpoint's.
#pragma once

#include <ATen/core/Tensor.h>

#include "store/safetensors.h"

namespace espalier::ckpt {

store::DType dtype_of(at::ScalarType type);  // CHECKs that a checkpoint can hold it
at::ScalarType scalar_type_of(store::DType dtype);

}  // namespace espalier::ckpt
