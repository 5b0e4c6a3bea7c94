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
    if (tensors.states[state].scalar_type() == at::kFloat)
      elements.states[state] = tensors.states[state].mutable_data_ptr<float>();
  if (value.const_data_ptr() != master.const_data_ptr()) elements.value = value.mutable_data_ptr();
  return elements;
}

inline bool has_stored_states(const OptimizerTensors& tensors) {
  for (const at::Tensor& state : tensors.states)
    if (state.scalar_type() != at::kFloat) return true;
  return false;
}

// But for the keys.
inline StoredElements stored_elements(const spec::OptimizerKind& kind, const OptimizerTensors& tensors,
                                      const spec::OptimizerConstants& constants) {
  StoredElements stored{.elements = optimizer_elements(tensors, constants),
                        .states = {},
                        .keys = {},
                        .step = static_cast<uint64_t>(tensors.rounding->step)};
  for (size_t state = 0; state < tensors.states.size(); ++state) {
    const at::ScalarType type = tensors.states[state].scalar_type();
    stored.states[state] = {tensors.states[state].mutable_data_ptr(),
                            type == at::kFloat      ? spec::StateType::kFp32
                            : type == at::kBFloat16 ? spec::StateType::kBf16
                                                    : spec::StateType::kFp8,
                            kind.states[state].moment != spec::StateTensor::Moment::kSecond};
  }
  return stored;
}

}  // namespace espalier::kernels
