// Runs the kernels of src/kernels/cuda on the host, thread by thread, so that a machine without a GPU can test them.
//
// Stands in for kernels/cuda/device.cuh where a .cu file is compiled as C++. Each thread of a block is a fiber; a
// barrier or a shuffle hands the processor to the next one. Blocks run one after another. What is wrong with a launch
// is an InternalError of launch(): what a driver would refuse, a race (kernel_accesses.h), an exchange of less than a
// warp, and whatever a kernel's threads throw. x86-64, System V.
//
// What it cannot show: more threads than __launch_bounds__ says, which is no part of the kernel that launch() gets, nor
// can be of any function that is known by its address; shared memory of launch and kernel together (each has a limit).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/launch.h"
#include "tests/support/device_memory.h"
#include "tests/support/kernel_accesses.h"

// Not followed by the recorder of accesses: what it does is not the kernel's.
#define ESPALIER_UNFOLLOWED __attribute__((no_sanitize("thread")))

// NOLINTBEGIN(readability-identifier-naming): these names are CUDA's
#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
// Where a thread is: not in memory, on a device.
struct LaunchPlace {
  dim3 grid, block, block_in_grid{0, 0, 0}, thread_in_block{0, 0, 0};
};
inline LaunchPlace launch_place;
#define gridDim launch_place.grid
#define blockDim launch_place.block
#define blockIdx launch_place.block_in_grid
#define threadIdx launch_place.thread_in_block

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

// The threads of one block, until all have ended. What it does itself is not a kernel's: device_on_host.cpp is compiled
// without the recorder of accesses.
class FiberBlock {
 public:
  static FiberBlock& current();

  void run(const dim3& size, const std::function<void()>& body);
  // Of all threads that a block can have.
  KernelAccesses::Memory stacks() const { return {stacks_.get(), kMostThreads * kStackBytes}; }

  void block_barrier();

  // What each lane of a warp gives in an exchange.
  using Given = std::array<uint32_t, 8>;
  class Exchanged {
   public:
    const Given& of(size_t lane) const;

   private:
    friend FiberBlock;
    Exchanged(const FiberBlock& block, size_t first, size_t number) : block_(block), first_(first), number_(number) {}
    const FiberBlock& block_;
    size_t first_, number_;
  };
  // Valid until this lane's next one. All lanes of the warp come to it. Not recorded.
  Exchanged give(const void* value, size_t bytes);
  // The value that lane `source` of this warp gives.
  template <class T>
  ESPALIER_UNFOLLOWED T exchange(T value, size_t source) {
    static_assert(sizeof(T) <= sizeof(Given));
    exchange(&value, sizeof value, source);
    return value;
  }
  size_t lane() const { return at_ % kLanes; }
  size_t thread() const { return at_; }
  uint64_t blocks_run() const { return blocks_run_; }

 private:
  static constexpr size_t kLanes = 32, kMostThreads = 1024, kStackBytes = 64 << 10;
  enum class State { kReady, kAtWarp, kAtBlock, kEnded };
  struct Fiber {
    void* top;  // of its stack, while another runs
    State state;
    Given given[2];
    size_t exchanges;
  };

  void begin(size_t thread);
  static void run_current();
  void wait(State state);
  void exchange(void* value, size_t bytes, size_t source);
  void release(size_t count);
  void release(size_t begin, size_t end, State barrier);

  std::vector<Fiber> fibers_ = std::vector<Fiber>(kMostThreads);
  // Memory that no thread has come to is none of this machine's.
  std::unique_ptr<char[]> stacks_ = std::make_unique_for_overwrite<char[]>(kMostThreads * kStackBytes);
  std::exception_ptr error_;  // of a thread
  const std::function<void()>* body_ = nullptr;
  void* scheduler_ = nullptr;
  size_t at_ = 0;
  uint64_t blocks_run_ = 0;
};

inline void __syncthreads() { FiberBlock::current().block_barrier(); }
inline void check_lanes(unsigned lanes) {
  ESPALIER_CHECK(lanes == 0xFFFFFFFF, "an exchange of lanes ", std::hex, lanes, " of a warp");
}
template <class T>
T __shfl_sync(unsigned lanes, T value, int lane) {
  check_lanes(lanes);
  return FiberBlock::current().exchange(value, static_cast<size_t>(lane));
}
template <class T>
T __shfl_xor_sync(unsigned lanes, T value, int mask) {
  check_lanes(lanes);
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
  note_read(from, kBytes);
  const Unrecorded here;
  std::memcpy(registers, whole<kBytes>(from), kBytes);
}
template <int kBytes>
void store_bytes(void* to, const void* registers) {
  note_write(to, kBytes);
  const Unrecorded here;
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
// The most shared memory, in bytes, that launches of a name have asked for.
inline std::map<std::string, int> most_shared_bytes;

// What the driver refuses on all of the GPUs that kernels are compiled for. Not all of them have so much shared memory:
// most_shared_bytes tells.
template <class... Parameters>
void check_limits(const char* name, const Launch& how) {
  constexpr int kMostThreads = 1024, kMostShared = 227 << 10;
  constexpr size_t kMostParameters = 4096;
  ESPALIER_CHECK(how.grid.x > 0 && how.grid.x <= INT32_MAX && how.grid.y > 0 && how.grid.y <= 65535 && how.grid.z == 1,
                 name, ": a grid of ", how.grid.x, " x ", how.grid.y, " x ", how.grid.z);
  const uint64_t threads = uint64_t{how.block.x} * how.block.y * how.block.z;
  ESPALIER_CHECK(threads > 0 && threads <= kMostThreads && how.block.z <= 64, name, ": a block of ", how.block.x, " x ",
                 how.block.y, " x ", how.block.z, " threads");
  ESPALIER_CHECK(how.shared_bytes >= 0 && how.shared_bytes <= kMostShared, name, ": ", how.shared_bytes,
                 " bytes of shared memory");
  constexpr size_t kParameters = (size_t{0} + ... + sizeof(Parameters));
  ESPALIER_CHECK(kParameters <= kMostParameters, name, ": ", kParameters, " bytes of parameters");
}

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const Launch& how, const Arguments&... arguments) {
  last_launches.emplace_back(name);
  check_limits<Parameters...>(name, how);
  most_shared_bytes[name] = max(most_shared_bytes[name], how.shared_bytes);
  launch_place = {how.grid, how.block};
  FiberBlock& block = FiberBlock::current();
  KernelAccesses& accesses = KernelAccesses::instance();
  accesses.begin_launch({DeviceMemory::instance().begin(), DeviceMemory::kBytes},
                        {block.stacks(), {&launch_place, sizeof launch_place}});
  const DeviceMemory::Open open;
  for (unsigned y = 0; y < how.grid.y; ++y) {
    for (unsigned x = 0; x < how.grid.x; ++x) {
      blockIdx = dim3(x, y);
      // Memory that a block has not written holds nothing.
      shared_storage.assign(static_cast<size_t>(how.shared_bytes) / sizeof(float),
                            std::numeric_limits<float>::quiet_NaN());
      accesses.begin_block({shared_storage.data(), shared_storage.size() * sizeof(float)});
      block.run(how.block, [&]() ESPALIER_UNFOLLOWED {
        record_accesses(true);
        kernel(arguments...);
        record_accesses(false);
      });
      ESPALIER_CHECK(accesses.trouble().empty(), name, ": ", accesses.trouble());
    }
  }
}

}  // namespace espalier::cuda
// NOLINTEND(readability-identifier-naming)
