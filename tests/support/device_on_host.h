// Runs the kernels of src/kernels/cuda on the host, thread by thread, so that a machine without a GPU can test them.
//
// Stands in for kernels/cuda/device.cuh where a .cu file is compiled as C++. Each thread of a block is a fiber; a
// barrier or a shuffle hands the processor to the next one. Blocks run one after another. What it cannot show: races
// between blocks, and between two barriers (fibers run there one by one); launches that a driver would refuse. x86-64,
// System V.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/launch.h"

// NOLINTBEGIN(readability-identifier-naming): these names are CUDA's
#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
inline dim3 blockIdx(0, 0, 0), threadIdx(0, 0, 0), blockDim, gridDim;

struct __nv_bfloat16 {
  uint16_t bits;
};
using __half = _Float16;
inline float __bfloat162float(__nv_bfloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return {static_cast<uint16_t>(std::isnan(x) ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}
inline float __half2float(__half x) { return static_cast<float>(x); }
inline __half __float2half_rn(float x) { return static_cast<__half>(x); }

namespace espalier::cuda {

using std::max;
using std::min;

// Leaves this stack, whose top goes to *from, for another one that was left in the same way.
__attribute__((naked, noinline)) inline void switch_stack(void** /*from*/, void* /*to*/) {
  asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}

// The threads of one block, until all have ended.
class FiberBlock {
 public:
  static FiberBlock& current() {
    static FiberBlock block;
    return block;
  }

  void run(const dim3& size, const std::function<void()>& body) {
    const size_t count = size_t{size.x} * size.y * size.z;
    ESPALIER_CHECK(count % kLanes == 0 && count <= 1024, count, " threads in a block");
    if (fibers_.size() < count) fibers_.resize(count);
    body_ = &body;
    ++blocks_run_;
    for (size_t i = 0; i < count; ++i) begin(fibers_[i]);
    for (size_t live = count; live > 0;) {
      bool ran = false;
      for (size_t place = 0; place < count; ++place) {
        const size_t i = last_first_ ? count - 1 - place : place;
        if (fibers_[i].state != State::kReady) continue;
        at_ = i;
        threadIdx = dim3(i % size.x, i / size.x % size.y, i / size.x / size.y);
        switch_stack(&scheduler_, fibers_[i].top);
        live -= fibers_[i].state == State::kEnded;
        ran = true;
      }
      ESPALIER_CHECK(ran, "threads of a block wait for different things");
      release(count);
    }
  }

  void block_barrier() { wait(State::kAtBlock); }

  // What each lane of a warp gives in an exchange.
  using Given = std::array<uint32_t, 8>;
  class Exchanged {
   public:
    const Given& of(size_t lane) const {
      const Fiber& fiber = block_.fibers_[first_ + lane];
      ESPALIER_CHECK(fiber.exchanges >= number_, "lane ", lane, " has ended");
      return fiber.given[number_ % 2];
    }

   private:
    friend FiberBlock;
    Exchanged(const FiberBlock& block, size_t first, size_t number) : block_(block), first_(first), number_(number) {}
    const FiberBlock& block_;
    size_t first_, number_;
  };
  // Valid until this lane's next one. All lanes of the warp come to it.
  template <class T>
  Exchanged give(const T& value) {
    static_assert(sizeof(T) <= sizeof(Given));
    Fiber& self = fibers_[at_];
    // Given to two places in turn: a lane that is ahead by one exchange does not overwrite what others still read.
    std::memcpy(self.given[++self.exchanges % 2].data(), &value, sizeof value);
    const Exchanged exchanged(*this, at_ / kLanes * kLanes, self.exchanges);
    wait(State::kAtWarp);
    return exchanged;
  }
  // The value that lane `source` of this warp gives.
  template <class T>
  T exchange(T value, size_t source) {
    const Exchanged all = give(value);
    std::memcpy(&value, all.of(source).data(), sizeof value);
    return value;
  }
  size_t lane() const { return at_ % kLanes; }
  size_t thread() const { return at_; }
  // Between two barriers, the threads with the highest numbers run first. Where a barrier is missing, results change.
  void run_last_threads_first(bool last_first) { last_first_ = last_first; }
  uint64_t blocks_run() const { return blocks_run_; }

 private:
  static constexpr size_t kLanes = 32, kStackBytes = 64 << 10;
  enum class State { kReady, kAtWarp, kAtBlock, kEnded };
  struct Fiber {
    void* top;  // of its stack, while another runs
    State state;
    Given given[2];
    size_t exchanges;
    std::unique_ptr<char[]> stack;
  };

  void begin(Fiber& fiber) {
    if (!fiber.stack) fiber.stack = std::make_unique<char[]>(kStackBytes);
    fiber.state = State::kReady;
    fiber.exchanges = 0;
    // As switch_stack leaves a stack: six registers, then where to continue; at that point the stack is 8 bytes off 16.
    const auto end = reinterpret_cast<uintptr_t>(fiber.stack.get() + kStackBytes) / 16 * 16;
    auto* const top = reinterpret_cast<void**>(end) - 8;
    std::fill_n(top, 8, nullptr);
    top[6] = reinterpret_cast<void*>(&FiberBlock::run_current);
    fiber.top = top;
  }
  static void run_current() {
    FiberBlock& block = current();
    (*block.body_)();
    Fiber& fiber = block.fibers_[block.at_];
    fiber.state = State::kEnded;
    switch_stack(&fiber.top, block.scheduler_);
  }
  void wait(State state) {
    Fiber& fiber = fibers_[at_];
    const size_t self = at_;
    const dim3 index = threadIdx;
    fiber.state = state;
    switch_stack(&fiber.top, scheduler_);
    at_ = self;
    threadIdx = index;
  }
  // Lets go whom all others of its warp, or of the block, have reached.
  void release(size_t count) {
    for (size_t warp = 0; warp < count; warp += kLanes) release(warp, warp + kLanes, State::kAtWarp);
    release(0, count, State::kAtBlock);
  }
  void release(size_t begin, size_t end, State barrier) {
    for (size_t i = begin; i < end; ++i)
      if (fibers_[i].state != barrier && fibers_[i].state != State::kEnded) return;
    for (size_t i = begin; i < end; ++i)
      if (fibers_[i].state == barrier) fibers_[i].state = State::kReady;
  }

  std::vector<Fiber> fibers_;
  const std::function<void()>* body_ = nullptr;
  void* scheduler_ = nullptr;
  size_t at_ = 0;
  uint64_t blocks_run_ = 0;
  bool last_first_ = false;
};

inline void __syncthreads() { FiberBlock::current().block_barrier(); }
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return FiberBlock::current().exchange(value, static_cast<size_t>(lane));
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return FiberBlock::current().exchange(value, FiberBlock::current().lane() ^ static_cast<size_t>(mask));
}

inline constexpr int kSharedAlignment = 1024;  // of the addresses that kernels see: they begin at zero
inline std::vector<float> shared_storage;
inline float* shared_memory() { return shared_storage.data(); }

// One access: the hardware refuses an address that is not a multiple of its size.
template <int kBytes>
const void* whole(const void* address) {
  static_assert(kBytes == 16 || kBytes == 8 || kBytes == 4);
  ESPALIER_CHECK(reinterpret_cast<uintptr_t>(address) % kBytes == 0, "an access of ", kBytes, " bytes at ", address);
  return address;
}
template <int kBytes>
void load_bytes(void* registers, const void* from) {
  std::memcpy(registers, whole<kBytes>(from), kBytes);
}
template <int kBytes>
void store_bytes(void* to, const void* registers) {
  whole<kBytes>(to);
  std::memcpy(to, registers, kBytes);
}

inline void compute_anew(void*) {}

struct Launch {
  dim3 grid, block;
  int shared_bytes;
  Stream stream;
};
// The names of the launches since the last time that a test cleared them.
inline std::vector<std::string> last_launches;

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const Launch& how, const Arguments&... arguments) {
  last_launches.emplace_back(name);
  ESPALIER_CHECK(how.grid.x > 0 && how.grid.x <= INT32_MAX && how.grid.y > 0 && how.grid.y <= 65535 && how.grid.z == 1,
                 name, ": a grid of ", how.grid.x, " x ", how.grid.y, " x ", how.grid.z);
  gridDim = how.grid;
  blockDim = how.block;
  for (unsigned y = 0; y < how.grid.y; ++y) {
    for (unsigned x = 0; x < how.grid.x; ++x) {
      blockIdx = dim3(x, y);
      // Memory that a block has not written holds nothing.
      shared_storage.assign(static_cast<size_t>(how.shared_bytes) / sizeof(float),
                            std::numeric_limits<float>::quiet_NaN());
      FiberBlock::current().run(how.block, [&] { kernel(arguments...); });
    }
  }
}

}  // namespace espalier::cuda
// NOLINTEND(readability-identifier-naming)
