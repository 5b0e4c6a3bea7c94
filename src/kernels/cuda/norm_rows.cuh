// How norms divide matrices: a row belongs to one warp of a block or to several, by its length, and is read once where
// their registers hold it. Of what is summed over rows each block adds the rows of a part while it has them.
#pragma once

#include "kernels/cuda/vectors.cuh"

namespace espalier::cuda {

inline constexpr int kWarps = kThreads / kWarp;
// Packs of a row that a thread holds: more than these would not fit its registers beside what it sums.
inline constexpr int kForwardPacks = 4, kBackwardPacks = 4, kCentredBackwardPacks = 3;

// `warps` of a row: a power of two, so that a block has whole rows.
struct RowLayout {
  int warps;
  bool held;  // by the registers of its threads
};
inline RowLayout row_layout(int64_t packs, int of_thread) {
  int warps = 1;
  while (warps < kWarps && warps * kWarp * of_thread < packs) warps *= 2;
  return {warps, warps * kWarp * of_thread >= packs};
}
inline int64_t rows_at_once(const RowLayout& layout) { return kWarps / layout.warps; }

// Where a thread is: lane `lane` of `lanes` of the `row`-th row that the block has at a time.
struct RowPlace {
  int lanes, lane, row;
  __device__ explicit RowPlace(int warps) : lanes(warps * kWarp), lane(static_cast<int>(threadIdx.x) & (lanes - 1)) {
    row = static_cast<int>(threadIdx.x) / kWarp;
    for (int of_row = warps; of_row > 1; of_row /= 2) row /= 2;
  }
};

// Sums over the lanes of a row, on all of them, the same bits. Every thread of the block calls it.
template <int kCount>
__device__ inline void sum_over_row(float (&values)[kCount], int warps) {
  __shared__ float of_warp[kCount][kWarps];
  for (int i = 0; i < kCount; ++i) values[i] = warp_sum(values[i]);
  if (warps == 1) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, first = warp / warps * warps;
  __syncthreads();  // the sums before have been read
  if (threadIdx.x % kWarp == 0)
    for (int i = 0; i < kCount; ++i) of_warp[i][warp] = values[i];
  __syncthreads();
  for (int i = 0; i < kCount; ++i) {
    values[i] = 0;
    for (int other = 0; other < warps; ++other) values[i] += of_warp[i][first + other];
  }
}

// Sums over the columns of a row. Of fp32 the neighbours in a pack are added to one another last, as in the vectors of
// the CPU's kernels: where rows are short, results differ by their roundings. Else they are added first.
template <class T, int kSums>
class RowSums {
 public:
  __device__ void add(int sum, float (&values)[kPack<T>]) {
    if constexpr (kApart == 1) {
      of_[sum * kApart] += pairwise_sum(values);
    } else {
      for (int i = 0; i < kApart; ++i) of_[sum * kApart + i] += values[i];
    }
  }
  // On all lanes. Every thread of the block calls it.
  __device__ void finish(int warps, float (&totals)[kSums]) {
    sum_over_row(of_, warps);
    for (int sum = 0; sum < kSums; ++sum) {
      float parts[kApart];
      for (int i = 0; i < kApart; ++i) parts[i] = of_[sum * kApart + i];
      totals[sum] = pairwise_sum(parts);
    }
  }

 private:
  static constexpr int kApart = sizeof(T) == sizeof(float) ? kPack<T> : 1;
  float of_[kSums * kApart] = {};
};

// The packs of a row that one thread has: number lane, lane + lanes, ... It holds kHeld of them; 0: they are read anew.
template <class T, bool kWhole, int kHeld>
class RowPacks {
 public:
  __device__ RowPacks(const T* row, int64_t columns, const RowPlace& at) : row_(row), columns_(columns), at_(at) {
    if constexpr (kHeld > 0) {
      for (int number = 0; number < kHeld; ++number)
        if (column_of(number) < columns_) held_[number] = load(column_of(number));
    }
  }
  // visit(column, pack, number), numbers from 0 up to kHeld where the row is held.
  template <class Visit>
  __device__ void for_each(const Visit& visit) const {
    if constexpr (kHeld > 0) {
      for (int number = 0; number < kHeld; ++number)
        if (column_of(number) < columns_) visit(column_of(number), held_[number], number);
    } else {
      for (int64_t column = column_of(0); column < columns_; column += int64_t{at_.lanes} * kPack<T>)
        visit(column, load(column), 0);
    }
  }
  __device__ Pack<T> pack(int64_t column, int number) const {
    if constexpr (kHeld > 0) return held_[number];
    return load(column);
  }
  // Of values that the next visit has in common with the last, only packs stay in registers.
  __device__ void compute_anew() {
    for (int number = 0; number < kHeld; ++number) cuda::compute_anew(&held_[number]);
  }

 private:
  __device__ int64_t column_of(int number) const { return (int64_t{number} * at_.lanes + at_.lane) * kPack<T>; }
  __device__ Pack<T> load(int64_t column) const { return load_pack<kWhole>(row_ + column, columns_ - column); }

  const T* row_;
  int64_t columns_;
  const RowPlace& at_;
  Pack<T> held_[kHeld > 0 ? kHeld : 1];
};

// Sums over the rows of a part as the threads of a block have them, of each of their columns: partials [part][kSums].
// `lanes` threads have a row.
template <int kSums, int kPacks, int kCount>
__device__ inline void store_part(const float (&sums)[kSums][kPacks][kCount], int64_t columns, int lanes,
                                  float* partials) {
  __shared__ float of_thread[kThreads * kCount];
  const int width = lanes * kCount;  // columns of one pack of all lanes
  for (int number = 0; number < kPacks; ++number) {
    const int64_t first = int64_t{number} * width;
    if (first >= columns) break;
    for (int sum = 0; sum < kSums; ++sum) {
      for (int i = 0; i < kCount; ++i) of_thread[threadIdx.x * kCount + i] = sums[sum][number][i];
      __syncthreads();
      for (int at = static_cast<int>(threadIdx.x); at < width && first + at < columns; at += kThreads) {
        float total = 0;
        for (int row = 0; row < kThreads / lanes; ++row) total += of_thread[row * width + at];
        partials[(int64_t{blockIdx.x} * kSums + sum) * columns + first + at] = total;
      }
      __syncthreads();
    }
  }
}

}  // namespace espalier::cuda
