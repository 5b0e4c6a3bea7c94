// What an op keeps for its backward pass, as a named list.
//
// Ops call save_for_backward instead of the context's own method; an observer (the memory accounting) then knows what
// every op holds, by name.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>

namespace torch::autograd {
struct AutogradContext;
}

namespace espalier::tensor {

struct SavedTensor {
  const char* name;
  at::Tensor tensor;
};

// `op` names the op ("layer_norm"). Saved tensors come back from context->get_saved_variables() in the same order.
void save_for_backward(torch::autograd::AutogradContext* context, const char* op,
                       std::initializer_list<SavedTensor> saved);

using SavedObserver = std::function<void(const char* op, const SavedTensor& saved)>;
// Sees every save of this thread until the returned value is destroyed.
class ObserveSaved {
 public:
  explicit ObserveSaved(SavedObserver observer);
  ~ObserveSaved();
  ObserveSaved(const ObserveSaved&) = delete;
  ObserveSaved& operator=(const ObserveSaved&) = delete;

 private:
  SavedObserver observer_;
  const SavedObserver* outer_;
};

}  // namespace espalier::tensor
