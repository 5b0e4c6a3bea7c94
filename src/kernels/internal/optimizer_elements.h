// The tensors of one update as pointers, for every device's kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/internal/row_kernels.h"
#include "kernels/optimizer_update.h"

namespace espalier::kernels {

inline OptimizerElements optimizer_elements(const OptimizerTensors& tensors,
                                            const spec::OptimizerConstants& constants) {
  const at::Tensor &master = tensors.master, &value = tensors.value;
  OptimizerElements elements{.master = master.mutable_data_ptr<float>(),
                             .states = {},
                             .grad = tensors.grad.mutable_data_ptr<float>(),
                             .value = nullptr,
                             .constants = constants};
  for (size_t state = 0; state < tensors.states.size(); ++state)
    elements.states[state] = tensors.states[state].mutable_data_ptr<float>();
  if (value.const_data_ptr() != master.const_data_ptr()) elements.value = value.mutable_data_ptr();
  return elements;
}

}  // namespace espalier::kernels
