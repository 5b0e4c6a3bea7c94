// What the tensor cores of sm_80 and later offer, as PTX names it: copies into shared memory that run beside the
// computation, fragments of matrices in the registers of a warp, and their product. Its counterpart for tests without a
// GPU, which also says which lane has which element, is tests/support/tensor_core_on_host.h.
#pragma once

#ifndef __CUDACC__
#include "tests/support/tensor_core_on_host.h"
#else

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device.cuh"

#define ESPALIER_UNROLL _Pragma("unroll")
#define ESPALIER_UNROLL_2 _Pragma("unroll 2")
#define ESPALIER_UNROLL_4 _Pragma("unroll 4")

namespace espalier::cuda {

using SharedAddress = uint32_t;
__device__ inline SharedAddress shared_address(const void* memory) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(memory));
}

// ---- copies that arrive when they are waited for; zeros where not `present`, and then nothing is read

__device__ inline void copy_async_16(SharedAddress to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(present ? 16 : 0) : "memory");
}
__device__ inline void copy_async_4(SharedAddress to, const void* from, bool present) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(present ? 4 : 0) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the newest groups of this thread's copies.
template <int kNewestLeft>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewestLeft) : "memory");
}

// ---- fragments of matrices

// threadIdx.x, read anew: the compiler holds nothing in registers that depends on it from here to the next.
__device__ inline int thread_read_anew() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
__device__ inline void load_matrices(uint32_t (&parts)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
               : "r"(row));
}
__device__ inline void load_matrices_transposed(uint32_t (&parts)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
               : "r"(row));
}

// sums [16][8] += a [16][16] b [16][8]
template <class T>
__device__ inline void add_product(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// To nearest even; the first in the low half.
template <class T>
__device__ inline uint32_t two_rounded(float first, float second) {
  uint32_t both;
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
}

// 2^x to 2 units in the last place; what is smaller than the smallest normal number is zero.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

struct alignas(16) Bytes16 {
  uint32_t word[4];
};
__device__ inline Bytes16 read_16(const void* from) { return *static_cast<const Bytes16*>(from); }
// Of the device's memory.
__device__ inline void write_16(void* to, const Bytes16& bytes) { store_bytes<16>(to, &bytes); }

}  // namespace espalier::cuda
#endif
