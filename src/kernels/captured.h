// Objects that an op's backward needs and that are not tensors: its Params and its GradQueue.
//
// They belong to the model and outlive the graph; the context keeps their addresses under a name.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>

namespace espalier::kernels {

template <class Object>
void capture(torch::autograd::AutogradContext* context, const char* name, Object* object) {
  context->saved_data[name] = static_cast<int64_t>(reinterpret_cast<intptr_t>(object));
}

// What was captured under `name`; nullptr if that is what was captured.
template <class Object>
Object* captured(torch::autograd::AutogradContext* context, const char* name) {
  return reinterpret_cast<Object*>(static_cast<intptr_t>(context->saved_data.at(name).toInt()));
}

}  // namespace espalier::kernels
