// Updates of optimizers: a list of tensors in one launch, four elements of a tensor at a time for each thread.
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/lists.cuh"
#include "kernels/cuda/vectors.cuh"
#include "spec/optimizers/list.h"

namespace espalier::cuda {
namespace {

constexpr int kElements = 4;  // that a thread updates at a time

// Elements i .. i + kElements - 1, of which `left` exist.
template <class Optimizer, class T, bool kWhole>
__device__ void update_elements(const OptimizerElements& args, const typename Optimizer::Constants& by, int64_t i,
                                int64_t left) {
  Pack<float, kElements> states[spec::kMaxOptimizerStates];
  auto weights = load_some<kWhole, kElements>(static_cast<const float*>(args.master + i), left);
  auto grads = load_some<kWhole, kElements>(static_cast<const float*>(args.grad + i), left);
  for (int state = 0; state < Optimizer::kNumStates; ++state)
    states[state] = load_some<kWhole, kElements>(static_cast<const float*>(args.states[state] + i), left);
  float values[kElements];
  for (int at = 0; at < kElements; ++at) {
    spec::OptimizerElement<Lane> element;
    for (int state = 0; state < Optimizer::kNumStates; ++state) element.states[state] = {states[state].of[at]};
    element.weight = {weights.of[at]};
    element.grad = {grads.of[at]};
    Optimizer::update(element, by);
    for (int state = 0; state < Optimizer::kNumStates; ++state) states[state].of[at] = element.states[state].x;
    grads.of[at] = element.grad.x;
    weights.of[at] = element.weight.x;
    values[at] = Optimizer::kAverages ? element.value.x : element.weight.x;
  }
  for (int state = 0; state < Optimizer::kNumStates; ++state)
    store_pack<kWhole>(args.states[state] + i, left, states[state]);
  if constexpr (Optimizer::kSecondPass != spec::SecondPass::kNone) {
    store_pack<kWhole>(args.grad + i, left, grads);
    return;
  }
  store_pack<kWhole>(args.master + i, left, weights);
  if (args.value != nullptr) store_pack<kWhole>(static_cast<T*>(args.value) + i, left, values);
}

template <class Optimizer, class T>
__global__ void __launch_bounds__(kThreads) update_kernel(List<ListedUpdate> list) {
  const ListPlace at(list);
  const ListedUpdate listed = list.items[at.item];  // a copy: what is stored might else have changed it
  typename Optimizer::Constants by;
  memcpy(&by, &listed.elements.constants, sizeof(by));
  const int64_t end = min(listed.count, at.begin + kListed);
  for (int64_t i = at.begin + threadIdx.x * kElements; i < end; i += kThreads * kElements) {
    if (listed.is_aligned && i + kElements <= end)
      update_elements<Optimizer, T, true>(listed.elements, by, i, kElements);
    else
      update_elements<Optimizer, T, false>(listed.elements, by, i, end - i);
  }
}

template <class T, class... Optimizer>
void launch_update(spec::OptimizerList<Optimizer...>, spec::OptimizerType which, const List<ListedUpdate>& list,
                   Stream stream) {
  const auto launch_if = [&](spec::OptimizerType type, auto kernel) {
    if (type == which)
      launch("optimizer_update", kernel, {static_cast<unsigned>(list.blocks), kThreads, 0, stream}, list);
  };
  (launch_if(Optimizer::kType, update_kernel<Optimizer, T>), ...);
}

}  // namespace

void optimizer_update(spec::OptimizerType optimizer, Element type, const List<ListedUpdate>& list, Stream stream) {
  with_element(type,
               [&](auto element) { launch_update<decltype(element)>(spec::Optimizers(), optimizer, list, stream); });
}

}  // namespace espalier::cuda
