// kernels/cuda/tensor_core.cuh for kernels that run on the host (device_on_host.h): what PTX says of which lane has
// which element, and when a copy has arrived, and no more than that. tests/cuda/tensor_core_test.cpp holds it against
// PTX's tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "tests/support/device_on_host.h"

#define ESPALIER_UNROLL
#define ESPALIER_UNROLL_2
#define ESPALIER_UNROLL_4

namespace espalier::cuda {

// Bytes from the start of the block's shared memory.
using SharedAddress = uint32_t;

inline SharedAddress shared_address(const void* memory) {
  const auto* const begin = reinterpret_cast<const char*>(shared_storage.data());
  const auto offset = static_cast<const char*>(memory) - begin;
  ESPALIER_CHECK(offset >= 0 && static_cast<size_t>(offset) <= shared_storage.size() * sizeof(float),
                 "not in shared memory");
  return static_cast<SharedAddress>(offset);
}
inline char* shared_bytes_at(SharedAddress address, size_t bytes) {
  ESPALIER_CHECK(address % bytes == 0, bytes, " bytes of shared memory at ", address);
  ESPALIER_CHECK(address + bytes <= shared_storage.size() * sizeof(float), "shared memory at ", address, " of ",
                 shared_storage.size() * sizeof(float));
  return reinterpret_cast<char*>(shared_storage.data()) + address;
}

// ---- copies that arrive when they are waited for

// Of one thread. Nothing has arrived before the wait, and what the source holds then is what arrives.
class PendingCopies {
 public:
  struct Copy {
    char* to;
    const char* from;  // null: zeros
    size_t bytes;
    KernelAccesses::Moment begin;
  };
  static PendingCopies& of_thread() {
    static std::vector<PendingCopies> threads(1024);
    const FiberBlock& block = FiberBlock::current();
    PendingCopies& mine = threads[block.thread()];
    if (mine.block_ != block.blocks_run()) {
      ESPALIER_CHECK(mine.groups_.empty() && mine.open_.empty(),
                     "a thread of a block before ended with copies under way");
      mine.block_ = block.blocks_run();
    }
    return mine;
  }
  void add(const Copy& copy) { open_.push_back(copy); }
  void commit() {
    groups_.push_back(std::move(open_));
    open_.clear();
  }
  void wait(size_t newest_left, bool recorded) {
    while (groups_.size() > newest_left) {
      for (const Copy& copy : groups_.front()) {
        if (recorded) KernelAccesses::instance().write(copy.to, copy.bytes, copy.begin);
        if (copy.from != nullptr)
          std::memcpy(copy.to, copy.from, copy.bytes);
        else
          std::memset(copy.to, 0, copy.bytes);
      }
      groups_.erase(groups_.begin());
    }
  }

 private:
  std::vector<std::vector<Copy>> groups_;  // oldest first
  std::vector<Copy> open_;
  uint64_t block_ = 0;
};

template <size_t kBytes>
void copy_async(SharedAddress to, const void* from, bool present) {
  const Unrecorded here;
  ESPALIER_CHECK(reinterpret_cast<uintptr_t>(from) % kBytes == 0, "a copy of ", kBytes, " bytes from an odd address");
  char* const there = shared_bytes_at(to, kBytes);
  KernelAccesses& accesses = KernelAccesses::instance();
  if (here.was_recording()) {
    if (present) accesses.read(from, kBytes);
    accesses.write(there, kBytes, accesses.now());
  }
  PendingCopies::of_thread().add({there, present ? static_cast<const char*>(from) : nullptr, kBytes, accesses.now()});
}
inline void copy_async_16(SharedAddress to, const void* from, bool present) { copy_async<16>(to, from, present); }
inline void copy_async_4(SharedAddress to, const void* from, bool present) { copy_async<4>(to, from, present); }
inline void commit_copies() {
  const Unrecorded here;
  PendingCopies::of_thread().commit();
}
template <int kNewestLeft>
void wait_for_copies() {
  const Unrecorded here;
  PendingCopies::of_thread().wait(kNewestLeft, here.was_recording());
}

// ---- fragments of matrices

inline int thread_read_anew() { return static_cast<int>(threadIdx.x); }

// ldmatrix .x4: matrix i of 8 x 8 elements has its rows where lanes 8 i .. 8 i + 7 say; lane l gets of each matrix the
// elements (row l / 4, columns 2 (l % 4) and the next), transposed: (rows 2 (l % 4) and the next, column l / 4).
inline void load_matrices(uint32_t (&parts)[4], SharedAddress row, bool transposed) {
  const Unrecorded here;
  FiberBlock& block = FiberBlock::current();
  const char* const own = shared_bytes_at(row, 16);
  if (here.was_recording()) KernelAccesses::instance().read(own, 16);
  const FiberBlock::Exchanged rows = block.give(&row, sizeof row);
  const size_t lane = block.lane();
  for (size_t matrix = 0; matrix < 4; ++matrix) {
    uint16_t two[2];
    for (size_t i = 0; i < 2; ++i) {
      const size_t r = transposed ? lane % 4 * 2 + i : lane / 4, c = transposed ? lane / 4 : lane % 4 * 2 + i;
      std::memcpy(&two[i], shared_bytes_at(rows.of(matrix * 8 + r)[0], 16) + 2 * c, 2);
    }
    std::memcpy(&parts[matrix], two, 4);
  }
}
inline void load_matrices(uint32_t (&parts)[4], SharedAddress row) { load_matrices(parts, row, false); }
inline void load_matrices_transposed(uint32_t (&parts)[4], SharedAddress row) { load_matrices(parts, row, true); }

template <class T>
float element_of(uint32_t two, size_t i) {
  const auto bits = static_cast<uint16_t>(two >> (16 * i));
  if constexpr (sizeof(T) == sizeof(__nv_bfloat16) && std::is_same_v<T, __nv_bfloat16>)
    return __bfloat162float({bits});
  else
    return __half2float(std::bit_cast<__half>(bits));
}

// mma.m16n8k16, sums += a b: a [16][16], b [16][8], sums [16][8]. The lane with the element (row, column) of `sums` and
// of `a`: 4 (row % 8) + column % 8 / 2; of `b`, which has its columns where `a` has rows: 4 column + row % 8 / 2.
template <class T>
void add_product(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const Unrecorded here;
  FiberBlock& block = FiberBlock::current();
  const uint32_t own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const FiberBlock::Exchanged all = block.give(own, sizeof own);
  const size_t lane = block.lane();
  float rows[2][16], columns[2][16];
  for (size_t two = 0; two < 8; ++two) {
    for (size_t i = 0; i < 2; ++i) {
      const uint32_t of_a = all.of(lane / 4 * 4 + two % 4)[i + 2 * (two / 4)];
      const uint32_t of_b = all.of((lane % 4 * 2 + i) * 4 + two % 4)[4 + two / 4];
      for (size_t k = 0; k < 2; ++k) {
        rows[i][two * 2 + k] = element_of<T>(of_a, k);
        columns[i][two * 2 + k] = element_of<T>(of_b, k);
      }
    }
  }
  for (size_t e = 0; e < 4; ++e) {
    float sum = 0;
    for (size_t k = 0; k < 16; ++k) sum += rows[e / 2][k] * columns[e % 2][k];
    sums[e] += sum;
  }
}

// To nearest even; the first in the low half.
template <class T>
uint32_t two_rounded(float first, float second) {
  T two[2];
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    two[0] = __float2bfloat16_rn(first);
    two[1] = __float2bfloat16_rn(second);
  } else {
    two[0] = __float2half_rn(first);
    two[1] = __float2half_rn(second);
  }
  uint32_t both;
  std::memcpy(&both, two, 4);
  return both;
}

// 2^x; what is smaller than the smallest normal number is zero.
inline float exp2_fast(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0 : y;
}

struct alignas(16) Bytes16 {
  uint32_t word[4];
};
inline Bytes16 read_16(const void* from) {
  note_read(from, 16);
  const Unrecorded here;
  ESPALIER_CHECK(reinterpret_cast<uintptr_t>(from) % 16 == 0, "16 bytes read from an odd address");
  Bytes16 bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}
inline void write_16(void* to, const Bytes16& bytes) {
  note_write(to, 16);
  const Unrecorded here;
  ESPALIER_CHECK(reinterpret_cast<uintptr_t>(to) % 16 == 0, "16 bytes written to an odd address");
  std::memcpy(to, &bytes, sizeof bytes);
}

}  // namespace espalier::cuda
