// Objects that an op's backward needs and that are not tensors: its Params and its GradQueue, by name, or everything at
// once as one plain struct. Params and queues belong to the model and outlive the graph; only their addresses are kept.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <utility>

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

template <class State>
struct CapturedState : torch::CustomClassHolder {
  explicit CapturedState(State s) : state(std::move(s)) {}
  State state;
};

template <class State>
void capture_state(torch::autograd::AutogradContext* context, State state) {
  context->saved_data["state"] = c10::IValue::make_capsule(c10::make_intrusive<CapturedState<State>>(std::move(state)));
}

// State must be the type that was given to capture_state. Lives as long as the context.
template <class State>
const State& captured_state(torch::autograd::AutogradContext* context) {
  return static_cast<const CapturedState<State>&>(*context->saved_data.at("state").toCapsule()).state;
}

// Whether an op with this input, if there is one, has to build a graph.
inline bool builds_graph(const at::Tensor& input) {
  return at::GradMode::is_enabled() && input.defined() && input.requires_grad();
}

}  // namespace espalier::kernels
