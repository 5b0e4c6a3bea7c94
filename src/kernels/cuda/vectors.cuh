// Neighbours of a row in the registers of one thread: 16 bytes of a matrix at a time where its rows allow that, else
// single elements. Results are the same: where a thread adds up what it holds, it holds the same elements both ways.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/elements.cuh"

namespace espalier::cuda {

template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

template <class T, int kCount = kPack<T>>
struct Pack {
  T of[kCount];
};
// What a thread takes where elements have nothing to do with one another.
template <class T, bool kWhole>
inline constexpr int kTaken = kWhole ? kPack<T> : 1;

// kWhole: all of them exist, at an address that is a multiple of their size (at most 16). Else the first `left` are
// and the others are zeros.
template <bool kWhole, int kCount, class T>
__device__ inline Pack<T, kCount> load_some(const T* from, int64_t left) {
  constexpr int kBytes = kCount * static_cast<int>(sizeof(T)), kAccess = kBytes < 16 ? kBytes : 16;
  Pack<T, kCount> pack;
  if constexpr (kWhole) {
    constexpr int kStep = kAccess / static_cast<int>(sizeof(T));
    for (int i = 0; i < kCount; i += kStep) load_bytes<kAccess>(pack.of + i, from + i);
  } else {
    for (int i = 0; i < kCount; ++i) {
      store(pack.of + i, 0.0f);
      if (i < left) pack.of[i] = from[i];
    }
  }
  return pack;
}
template <bool kWhole, class T>
__device__ inline Pack<T> load_pack(const T* from, int64_t left) {
  return load_some<kWhole, kPack<T>>(from, left);
}

template <bool kWhole, class T, int kCount>
__device__ inline void store_pack(T* to, int64_t left, const Pack<T, kCount>& pack) {
  constexpr int kBytes = kCount * static_cast<int>(sizeof(T)), kAccess = kBytes < 16 ? kBytes : 16;
  if constexpr (kWhole) {
    constexpr int kStep = kAccess / static_cast<int>(sizeof(T));
    for (int i = 0; i < kCount; i += kStep) store_bytes<kAccess>(to + i, pack.of + i);
  } else {
    for (int i = 0; i < kCount; ++i)
      if (i < left) to[i] = pack.of[i];
  }
}
// Rounded to nearest even.
template <bool kWhole, class T, int kCount>
__device__ inline void store_pack(T* to, int64_t left, const float (&values)[kCount]) {
  Pack<T, kCount> pack;
  for (int i = 0; i < kCount; ++i) store(pack.of + i, values[i]);
  store_pack<kWhole>(to, left, pack);
}

// The sum of what a thread has, pair by pair: roundings grow with the logarithm of their number.
template <int kCount>
__device__ inline float pairwise_sum(float (&values)[kCount]) {
  for (int distance = kCount / 2; distance > 0; distance /= 2)
    for (int i = 0; i < distance; ++i) values[i] += values[i + distance];
  return values[0];
}

// Whether rows of `columns` elements of T allow accesses of 16 bytes.
template <class T>
bool are_whole(int64_t columns, std::initializer_list<const void*> pointers) {
  if (columns % kPack<T> != 0) return false;
  for (const void* pointer : pointers)
    if (!is_aligned(pointer)) return false;
  return true;
}
// body(std::true_type{}) or body(std::false_type{}).
template <class Body>
void with_bool(bool value, const Body& body) {
  value ? body(std::true_type{}) : body(std::false_type{});
}

inline int64_t num_packs(int64_t columns, int64_t pack) { return (columns + pack - 1) / pack; }

// ---- all packs of a matrix
//
// Body: what is done to one pack, of kCount elements of a row. It adds to kSums numbers for each, which are summed over
// rows where that is asked for:
//   __device__ void operator()(int64_t row, int64_t column, float (*sums)[kCount]) const

inline constexpr int64_t kMostBlocks = 4096;  // some waves of the largest GPU; then threads take more rows

// Packs along x, rows along y. With as many registers as it wants: to fit more blocks ptxas spills one or two.
template <class Body>
__global__ void __launch_bounds__(kThreads, 1) for_each_pack(Body body, int64_t rows, int64_t columns) {
  const int64_t column = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * Body::kCount;
  if (column >= columns) return;
  const int64_t stride = int64_t{gridDim.y} * blockDim.y;
  for (int64_t row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows; row += stride) {
    float sums[Body::kSums][Body::kCount] = {};
    body(row, column, sums);
  }
}

template <class Body>
void launch_packs(const char* name, const Body& body, int64_t rows, int64_t columns, Stream stream) {
  if (rows == 0 || columns == 0) return;
  const int64_t packs = num_packs(columns, Body::kCount);
  const unsigned lanes = packs <= 8 ? 8 : packs <= 16 ? 16 : kWarp, high = kThreads / lanes;
  const unsigned across = num_blocks(packs, lanes), down = num_blocks(rows, high);
  const int64_t most = across < kMostBlocks ? kMostBlocks / across : 1;
  const dim3 grid(across, down < most ? down : static_cast<unsigned>(most)), block(lanes, high);
  launch(name, for_each_pack<Body>, {grid, block, 0, stream}, body, rows, columns);
}

inline constexpr int kSumRows = kThreads / kWarp;  // rows that a block adds at a time

// One block for the rows of a part and kWarp packs.
template <class Body>
__global__ void __launch_bounds__(kThreads, 1)
    sum_packs_of_part(Body body, int64_t rows, int64_t columns, int64_t rows_per_part, float* partials) {
  constexpr int kCount = Body::kCount, kSums = Body::kSums, kWidth = kWarp * kCount, kPadded = kWarp + 1;
  __shared__ float of_row[kSumRows][kCount * kPadded];
  const int64_t first_column = int64_t{blockIdx.x} * kWidth, column = first_column + threadIdx.x * kCount;
  const int64_t begin = int64_t{blockIdx.y} * rows_per_part, end = min(rows, begin + rows_per_part);
  float sums[kSums][kCount] = {};
  if (column < columns)
    for (int64_t row = begin + threadIdx.y; row < end; row += kSumRows) body(row, column, sums);
  for (int i = 0; i < kSums; ++i) {
    for (int j = 0; j < kCount; ++j) of_row[threadIdx.y][j * kPadded + threadIdx.x] = sums[i][j];
    __syncthreads();
    const int at = threadIdx.y * kWarp + threadIdx.x;  // one column for each thread
    if (at < kWidth && first_column + at < columns) {
      float total = 0;
      for (int row = 0; row < kSumRows; ++row) total += of_row[row][at % kCount * kPadded + at / kCount];
      partials[(blockIdx.y * kSums + i) * columns + first_column + at] = total;
    }
    __syncthreads();
  }
}

template <class Body>
void sum_parts(const char* name, const Body& body, int64_t rows, int64_t columns, float* partials, Stream stream) {
  if (rows == 0 || columns == 0) return;
  const dim3 grid(num_blocks(num_packs(columns, Body::kCount), kWarp), static_cast<unsigned>(num_parts(rows)));
  const dim3 block(kWarp, kSumRows);
  launch(name, sum_packs_of_part<Body>, {grid, block, 0, stream}, body, rows, columns, rows_of_part(rows), partials);
}
template <class Body>
void launch_sums(const char* name, const Body& body, int64_t rows, int64_t columns, const ColumnSums& to,
                 Stream stream) {
  sum_parts(name, body, rows, columns, to.partials, stream);
  add_parts(to.partials, num_parts(rows), Body::kSums * columns, to.sums, stream);
}

// With sums where `sums` is not null.
template <class Body>
void launch_packs(const char* name, const Body& body, int64_t rows, int64_t columns, const ColumnSums* sums,
                  Stream stream) {
  if (sums != nullptr)
    launch_sums(name, body, rows, columns, *sums, stream);
  else
    launch_packs(name, body, rows, columns, stream);
}

}  // namespace espalier::cuda
