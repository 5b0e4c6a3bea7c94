// Lets somebody see what layers compute, operation by operation, and the gradients that come back: espalier replay
// does.
//
//   at::Tensor y = observed(weight, kernels::linear(x, weight, ...));    // in a layer; y as it was
//
// Without an observer it costs a comparison. An observer changes no bit of what is computed. One thread computes
// forward passes; backward passes may run on another, never at the same time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "tensor/param.h"

namespace espalier::tensor {

enum class Pass {
  kForward,
  kBackward,  // the gradient of what the operation has computed
  kGradient   // of a parameter, summed over the step
};

struct ObservedPlace {
  Pass pass = Pass::kForward;
  int64_t part = 0;         // of the model, from 0 (pipeline::Runner)
  int64_t micro_batch = 0;  // of this replica
};

class TensorObserver {
 public:
  virtual ~TensorObserver() = default;
  // `values` must be left as they are, and are gone when this returns.
  virtual void see(const std::string& operation, const at::Tensor& values, const ObservedPlace& place) = 0;
};

// nullptr: nobody. Of this process; the observer outlives its time.
void set_observer(TensorObserver* observer);
TensorObserver* observer();
// What is computed from here on.
void set_observed_place(int64_t part, int64_t micro_batch);

// Shows `values`, and their gradient when it comes.
at::Tensor show(const std::string& operation, at::Tensor values);

inline at::Tensor observed(const std::string& operation, at::Tensor values) {
  return observer() == nullptr ? values : show(operation, std::move(values));
}
inline at::Tensor observed(const std::string& layer, const char* operation, at::Tensor values) {
  return observer() == nullptr ? values : show(layer + operation, std::move(values));
}
// Of an operation with a weight: "layers.3.mlp.dense_h_to_4h" of its ".weight".
inline at::Tensor observed(const Param& weight, at::Tensor values) {
  return observer() == nullptr ? values
                               : show(weight.spec->name.substr(0, weight.spec->name.rfind('.')), std::move(values));
}

}  // namespace espalier::tensor
