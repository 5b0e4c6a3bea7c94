#include "tensor/observe.h"

#include <ATen/ATen.h>

namespace espalier::tensor {
namespace {

TensorObserver* g_observer = nullptr;
ObservedPlace g_place;

}  // namespace

void set_observer(TensorObserver* observer) { g_observer = observer; }

TensorObserver* observer() { return g_observer; }

void set_observed_place(int64_t part, int64_t micro_batch) {
  g_place.part = part;
  g_place.micro_batch = micro_batch;
}

at::Tensor show(const std::string& operation, at::Tensor values) {
  ObservedPlace place = g_place;
  place.pass = Pass::kForward;
  g_observer->see(operation, values.detach(), place);
  if (!values.requires_grad()) return values;
  place.pass = Pass::kBackward;
  values.register_hook([operation, place](const at::Tensor& gradient) {
    if (g_observer != nullptr && gradient.defined()) g_observer->see(operation, gradient.detach(), place);
  });
  return values;
}

}  // namespace espalier::tensor
