// Updates of optimizers some of whose states are stored in fewer bits than fp32 (spec/stored_state.h): a list of
// tensors in one launch, a thread for each element.
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/lists.cuh"
#include "spec/optimizers/list.h"
#include "spec/stored_state.h"

namespace espalier::cuda {
namespace {

using Bits = spec::MomentBits<Lane>;

// The place of an element in its whole parameter.
__device__ int64_t number_of(int64_t i, const int64_t* runs, int64_t num_runs) {
  int64_t low = 0;
  for (int64_t high = num_runs; high - low > 1;) {
    const int64_t middle = (low + high) / 2;
    if (runs[3 * middle] <= i)
      low = middle;
    else
      high = middle;
  }
  return runs[3 * low + 1] + i - runs[3 * low];
}

__device__ uint32_t random_word(const StoredElements& args, int64_t number) {
  const uint64_t counter = static_cast<uint64_t>(number) / 4;
  const PhiloxWords words = philox(args.keys.first[0], args.keys.second[0],
                                   {{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                                     static_cast<uint32_t>(args.step), static_cast<uint32_t>(args.step >> 32)}});
  return words.word[number % 4];
}

__device__ float load_state(const StoredElements& args, int state, int64_t i) {
  const StoredElements::State& from = args.states[state];
  switch (from.type) {
    case spec::StateType::kFp32: break;
    case spec::StateType::kBf16:
      return Bits::float_of(static_cast<uint32_t>(static_cast<const uint16_t*>(from.data)[i]) << 16);
    case spec::StateType::kFp8: {
      const uint8_t* block = static_cast<const uint8_t*>(from.data) + i / spec::kMomentBlock * spec::kMomentBlockBytes;
      return Bits::float_of(Bits::from_code(block[1 + i % spec::kMomentBlock], block[0], from.has_sign));
    }
  }
  return args.elements.states[state][i];
}

// A warp holds a block: kMomentBlock lanes, all of which call this.
__device__ void store_block(const StoredElements::State& to, int64_t i, float value, uint32_t random) {
  const uint32_t bits = Bits::bits_of(value);
  uint32_t largest = bits & Bits::kMagnitude;
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, largest, distance);
    largest = other > largest ? other : largest;
  }
  const uint32_t scale = Bits::scale_of(largest, to.has_sign);
  uint8_t* block = static_cast<uint8_t*>(to.data) + i / spec::kMomentBlock * spec::kMomentBlockBytes;
  if (i % spec::kMomentBlock == 0) block[0] = static_cast<uint8_t>(scale);
  block[1 + i % spec::kMomentBlock] = Bits::to_code(bits, scale, to.has_sign, random);
}

__device__ void store_state(const StoredElements& args, int state, int64_t i, float value, uint32_t word) {
  const StoredElements::State& to = args.states[state];
  const uint32_t random = word >> (static_cast<uint32_t>(state) * spec::kRandomBits) & 0xFFFF;
  switch (to.type) {
    case spec::StateType::kFp32: args.elements.states[state][i] = value; break;
    case spec::StateType::kBf16:
      static_cast<uint16_t*>(to.data)[i] = Bits::to_bf16(Bits::bits_of(value), random);
      break;
    case spec::StateType::kFp8: store_block(to, i, value, random); break;
  }
}

// Where there are blocks the count is a multiple of theirs: a warp is whole or has nothing to do.
template <class Optimizer, class T>
__global__ void __launch_bounds__(kThreads) update_stored_kernel(List<ListedStored> list) {
  const ListPlace at(list);
  const ListedStored& listed = list.items[at.item];
  const StoredElements& args = listed.stored;
  const OptimizerElements& elements = args.elements;
  typename Optimizer::Constants by;
  memcpy(&by, &elements.constants, sizeof(by));
  const int64_t end = min(listed.count, at.begin + kListed);
  for (int64_t i = at.begin + threadIdx.x; i < end; i += kThreads) {
    spec::OptimizerElement<Lane> element;
    for (int state = 0; state < Optimizer::kNumStates; ++state) element.states[state] = {load_state(args, state, i)};
    element.weight = {elements.master[i]};
    element.grad = {elements.grad[i]};
    Optimizer::update(element, by);
    if constexpr (Optimizer::kSecondPass != spec::SecondPass::kNone) {
      elements.grad[i] = element.grad.x;
    } else {
      elements.master[i] = element.weight.x;
      if constexpr (!Optimizer::kAverages) element.value = element.weight;
      if (elements.value != nullptr) store(static_cast<T*>(elements.value) + i, element.value.x);
    }
    const uint32_t word = random_word(args, number_of(i, listed.runs, listed.num_runs));
    for (int state = 0; state < Optimizer::kNumStates; ++state)
      store_state(args, state, i, element.states[state].x, word);
  }
}

template <class T, class... Optimizer>
void launch_stored(spec::OptimizerList<Optimizer...>, spec::OptimizerType which, const List<ListedStored>& list,
                   Stream stream) {
  const auto launch_if = [&](spec::OptimizerType type, auto kernel) {
    if (type == which)
      launch("optimizer_update_stored", kernel, {static_cast<unsigned>(list.blocks), kThreads, 0, stream}, list);
  };
  (launch_if(Optimizer::kType, update_stored_kernel<Optimizer, T>), ...);
}

}  // namespace

void optimizer_update_stored(spec::OptimizerType optimizer, Element type, const List<ListedStored>& list,
                             Stream stream) {
  with_element(type,
               [&](auto element) { launch_stored<decltype(element)>(spec::Optimizers(), optimizer, list, stream); });
}

}  // namespace espalier::cuda
