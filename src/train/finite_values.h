// Whether numbers are numbers.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::train {

// Whether all of `values` (fp32, bf16 or fp16, on any device) are finite; with no copy of them as a whole.
bool is_finite(const at::Tensor& values);

}  // namespace espalier::train
