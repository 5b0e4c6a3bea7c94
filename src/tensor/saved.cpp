#include "tensor/saved.h"

#include <torch/csrc/autograd/custom_function.h>

namespace espalier::tensor {
namespace {
thread_local const SavedObserver* active_observer = nullptr;
}

void save_for_backward(torch::autograd::AutogradContext* context, const char* op,
                       std::initializer_list<SavedTensor> saved) {
  torch::autograd::variable_list tensors;
  for (const SavedTensor& entry : saved) {
    if (active_observer != nullptr) (*active_observer)(op, entry);
    tensors.push_back(entry.tensor);
  }
  context->save_for_backward(std::move(tensors));
}

ObserveSaved::ObserveSaved(SavedObserver observer) : observer_(std::move(observer)), outer_(active_observer) {
  active_observer = &observer_;
}
ObserveSaved::~ObserveSaved() { active_observer = outer_; }

}  // namespace espalier::tensor
