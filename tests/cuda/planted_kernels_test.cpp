// Kernels with a mistake each, and launches that no driver takes: the stand-in for a GPU refuses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "kernels/cuda/tensor_core.cuh"
#include "kernels/cuda/vectors.cuh"
#include "tests/support/device_memory.h"

namespace espalier::cuda {
namespace planted_kernels_test {

using ::testing::HasSubstr;

// Of the device.
class Floats {
 public:
  explicit Floats(size_t count)
      : values_(static_cast<float*>(DeviceMemory::instance().allocate(count * sizeof(float)))) {}
  ~Floats() { DeviceMemory::instance().release(values_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* get() const { return values_; }

 private:
  float* values_;
};

// What launch() says against it; empty: nothing.
template <class... Parameters, class... Arguments>
std::string refusal(void (*kernel)(Parameters...), const Launch& how, const Arguments&... arguments) {
  try {
    launch("planted", kernel, how, arguments...);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

__global__ void idle_kernel() {}
struct Large {
  char bytes[4096];
};
__global__ void large_kernel(Large, float*) {}

TEST(LaunchOnHost, RefusesWhatADriverDoes) {
  EXPECT_EQ(refusal(idle_kernel, {1, 1024, 227 << 10, nullptr}), "");
  EXPECT_THAT(refusal(idle_kernel, {1, 1056, 0, nullptr}), HasSubstr("planted: a block of 1056 x 1 x 1 threads"));
  EXPECT_THAT(refusal(idle_kernel, {1, dim3(32, 64), 0, nullptr}), HasSubstr("a block of 32 x 64 x 1 threads"));
  EXPECT_THAT(refusal(idle_kernel, {0, 32, 0, nullptr}), HasSubstr("a grid of 0 x 1"));
  EXPECT_THAT(refusal(idle_kernel, {dim3(1, 65536), 32, 0, nullptr}), HasSubstr("a grid of 1 x 65536"));
  EXPECT_THAT(refusal(idle_kernel, {1, 32, (227 << 10) + 1, nullptr}), HasSubstr("232449 bytes of shared memory"));
  EXPECT_THAT(refusal(large_kernel, {1, 32, 0, nullptr}, Large(), nullptr), HasSubstr("4104 bytes of parameters"));
}

// ---- exchanges

__global__ void exchange_kernel(unsigned lanes, unsigned first) {
  if (threadIdx.x >= first) __shfl_xor_sync(lanes, 1, 1);
}

TEST(LaunchOnHost, RefusesAnExchangeOfLessThanAWarp) {
  EXPECT_EQ(refusal(exchange_kernel, {1, 64, 0, nullptr}, kAllLanes, 32), "");
  EXPECT_THAT(refusal(exchange_kernel, {1, 64, 0, nullptr}, 0xFFFFu, 0), HasSubstr("lanes ffff of a warp"));
  EXPECT_THAT(refusal(exchange_kernel, {1, 64, 0, nullptr}, kAllLanes, 3),
              HasSubstr("3 lanes of a warp have ended where 29 exchange values"));
}

// ---- races

constexpr int kBlock = 64;

__global__ void neighbours_kernel(float* to, bool waits) {
  float* const values = shared_memory();
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (waits) __syncthreads();
  to[threadIdx.x] = values[kBlock - 1 - threadIdx.x];
}
__global__ void two_sums_kernel(float* to, bool waits) {
  __shared__ float of_thread[kBlock];
  for (int sum = 0; sum < 2; ++sum) {
    of_thread[threadIdx.x] = static_cast<float>(threadIdx.x + sum);
    __syncthreads();
    float total = 0;
    for (const float value : of_thread) total += value;
    to[sum * kBlock + threadIdx.x] = total;
    if (waits) __syncthreads();
  }
}
__global__ void one_result_kernel(float* to, int writers) {
  if (static_cast<int>(blockIdx.x) < writers) to[threadIdx.x] = 1;  // the same value
}
__global__ void from_another_block_kernel(float* values) {
  values[blockIdx.x * kBlock + threadIdx.x] = values[threadIdx.x] + 1;
}
__global__ void early_read_kernel(float* to, const float* from, bool waits) {
  float* const values = shared_memory();
  copy_async_16(shared_address(values + threadIdx.x * 4), from + threadIdx.x * 4, true);
  commit_copies();
  if (waits) wait_for_copies<0>();
  __syncthreads();
  to[threadIdx.x] = values[(kBlock - 1 - threadIdx.x) * 4];
  wait_for_copies<0>();
}
// In each warp.
__global__ void scale_kernel(float* scales, bool exchanges) {
  float* const own = scales + threadIdx.x / kWarp;
  float value = *own;
  if (exchanges) value = warp_max(value);
  if (threadIdx.x % kWarp == 0) *own = value + 1;
}

class RacesOnHost : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef ESPALIER_RECORDS_ACCESSES
    GTEST_SKIP() << "accesses are not recorded in this build";
#endif
  }
  const Floats to{4 * kBlock};
};

TEST_F(RacesOnHost, OfSharedMemoryAreRefused) {
  const Launch how{1, kBlock, kBlock * 4, nullptr};
  EXPECT_EQ(refusal(neighbours_kernel, how, to.get(), true), "");
  EXPECT_THAT(refusal(neighbours_kernel, how, to.get(), false),
              HasSubstr("thread 32 of block 0 writes 4 bytes of shared memory at 128, to which thread 31"));
}

TEST_F(RacesOnHost, OfSharedVariablesAreRefused) {
  const Launch how{1, kBlock, 0, nullptr};
  EXPECT_EQ(refusal(two_sums_kernel, how, to.get(), true), "");
  EXPECT_THAT(refusal(two_sums_kernel, how, to.get(), false), HasSubstr("bytes of shared variables at"));
}

TEST_F(RacesOnHost, BetweenBlocksAreRefused) {
  const Launch how{2, kBlock, 0, nullptr};
  EXPECT_EQ(refusal(one_result_kernel, how, to.get(), 1), "");
  EXPECT_THAT(refusal(one_result_kernel, how, to.get(), 2),
              HasSubstr("thread 0 of block 1 writes 4 bytes of the device's"));
  EXPECT_THAT(refusal(from_another_block_kernel, how, to.get()), HasSubstr("to which another block"));
}

TEST_F(RacesOnHost, WithACopyUnderWayAreRefused) {
  const Launch how{1, kBlock, kBlock * 16, nullptr};
  const Floats from(4 * kBlock);
  EXPECT_EQ(refusal(early_read_kernel, how, to.get(), from.get(), true), "");
  EXPECT_THAT(refusal(early_read_kernel, how, to.get(), from.get(), false), HasSubstr("bytes of shared memory at"));
}

TEST_F(RacesOnHost, LanesOfAWarpAreInOrderWhereTheyExchange) {
  const Launch how{1, kBlock, 0, nullptr};
  EXPECT_EQ(refusal(scale_kernel, how, to.get(), true), "");
  EXPECT_THAT(refusal(scale_kernel, how, to.get(), false), HasSubstr("of the device's memory"));
}

// ---- memory of the host's and of the device's

TEST_F(RacesOnHost, AKernelDoesNotReachTheHostsMemory) {
  std::vector<float> on_host(2 * kBlock);
  EXPECT_THAT(refusal(one_result_kernel, {1, kBlock, 0, nullptr}, on_host.data(), 1), HasSubstr("the host's memory"));
}

TEST(DeviceMemoryOnHost, IsNotTheHostsToReadOrWrite) {
  const Floats values(7);
  const volatile float* const from = values.get();
  EXPECT_DEATH(static_cast<void>(*from), "the host reads or writes the device's memory");
  EXPECT_DEATH(*values.get() = 1, "the host reads or writes the device's memory");
  const DeviceMemory::Open open;
  EXPECT_TRUE(std::isnan(from[6]));
}

}  // namespace planted_kernels_test
}  // namespace espalier::cuda
