// Compiled with NDEBUG, as libtorch was: without it RecordFunction::inputs() looks for a member that libtorch's code
// does not set.
#include "tests/cuda/host_waits.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>
#include <string_view>

namespace espalier::cuda_test {
namespace {

struct State {
  HostWaits::Counts counts;
  bool in_passes = false, in_optimizer = false;
};
// Backward passes on a GPU run on a thread of their own, while the one that began them waits.
State state;

bool* part_named(std::string_view name) {
  if (name == "forward and backward") return &state.in_passes;
  if (name == "optimizer") return &state.in_optimizer;
  return nullptr;
}

bool is_on_cpu(const c10::IValue& value) { return value.isTensor() && value.toTensor().is_cpu(); }

bool waits(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  const auto inputs = function.inputs();
  if (name == "aten::_local_scalar_dense") return true;
  return name == "aten::copy_" && is_on_cpu(inputs[0]) && !is_on_cpu(inputs[1]);
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  if (function.scope() == at::RecordScope::USER_SCOPE) {
    if (bool* const part = part_named(function.name())) *part = true;
    return nullptr;
  }
  if (!state.in_passes && !state.in_optimizer) return nullptr;
  if (waits(function)) ++(state.in_passes ? state.counts.in_passes : state.counts.in_optimizer);
  if (state.in_passes && std::string_view(function.name()) == "aten::copy_" && function.inputs()[2].toBool())
    ++state.counts.copies_without_wait;
  return nullptr;
}

void end(const at::RecordFunction& function, at::ObserverContext*) {
  if (function.scope() != at::RecordScope::USER_SCOPE) return;
  if (bool* const part = part_named(function.name())) *part = false;
}

}  // namespace

HostWaits::HostWaits() {
  state = {};
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&begin, &end)
                                      .needsInputs(true)
                                      .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}));
}

HostWaits::~HostWaits() { at::removeCallback(handle_); }

HostWaits::Counts HostWaits::counts() const { return state.counts; }

}  // namespace espalier::cuda_test
