// Norms of rows: n = (x - mean) rstd, y = n weight + bias; of an RMS norm the mean and the bias are 0.
#pragma once

#include "kernels/cuda/norm_rows.cuh"

namespace espalier::cuda {

struct NormForward {
  const void *x, *weight, *bias;
  void* y;
  float *mean, *rstd;
  int64_t columns, rows;
  float epsilon;
  int warps;
};
struct NormBackward {
  const void *x, *weight, *dy;
  void* dx;
  const float *mean, *rstd;
  int64_t columns, rows, rows_per_part;
  int warps;
  float* partials;
};

template <class T, bool kCentred, bool kWhole, int kHeld>
__global__ void __launch_bounds__(kThreads) norm_forward_kernel(NormForward args) {
  constexpr int kCount = kPack<T>;
  const RowPlace at(args.warps);
  const int64_t row = int64_t{blockIdx.x} * (kWarps / args.warps) + at.row, columns = args.columns;
  const bool present = row < args.rows;
  const RowPacks<T, kWhole, kHeld> x(static_cast<const T*>(args.x) + row * columns, present ? columns : 0, at);
  float total[1], mean = 0;
  if (kCentred) {
    RowSums<T, 1> sum;
    x.for_each([&](int64_t, const Pack<T>& pack, int) {
      float values[kCount];
      for (int i = 0; i < kCount; ++i) values[i] = widen(pack.of[i]);
      sum.add(0, values);
    });
    sum.finish(args.warps, total);
    mean = total[0] / static_cast<float>(columns);
  }
  // Of deviations, whose squares do not cancel where the mean is large.
  RowSums<T, 1> sum_of_squares;
  x.for_each([&](int64_t column, const Pack<T>& pack, int) {
    float squares[kCount];
    for (int i = 0; i < kCount; ++i) {
      const float deviation = widen(pack.of[i]) - mean;
      squares[i] = kWhole || column + i < columns ? deviation * deviation : 0;
    }
    sum_of_squares.add(0, squares);
  });
  sum_of_squares.finish(args.warps, total);
  const float rstd = 1 / sqrtf(total[0] / static_cast<float>(columns) + args.epsilon);
  T* const y = static_cast<T*>(args.y) + row * columns;
  x.for_each([&](int64_t column, const Pack<T>& pack, int) {
    const int64_t left = columns - column;
    const Pack<T> weight = load_pack<kWhole>(static_cast<const T*>(args.weight) + column, left);
    Pack<T> bias;
    if (kCentred) bias = load_pack<kWhole>(static_cast<const T*>(args.bias) + column, left);
    float values[kCount];
    for (int i = 0; i < kCount; ++i) {
      const float normalized = (widen(pack.of[i]) - mean) * rstd;
      values[i] =
          kCentred ? fmaf(normalized, widen(weight.of[i]), widen(bias.of[i])) : normalized * widen(weight.of[i]);
    }
    store_pack<kWhole>(y + column, left, values);
  });
  if (!present || at.lane > 0) return;
  if (kCentred) args.mean[row] = mean;
  args.rstd[row] = rstd;
}

// dx = rstd (g - mean(g) - n mean(g n)), g = dy weight; where a block holds its rows also the sums of dy n and dy.
template <class T, bool kCentred, bool kWhole, int kHeld>
__global__ void __launch_bounds__(kThreads, 2) norm_backward_kernel(NormBackward args) {
  constexpr int kCount = kPack<T>, kSums = kCentred ? 2 : 1;
  const RowPlace at(args.warps);
  const int64_t begin = int64_t{blockIdx.x} * args.rows_per_part, end = min(args.rows, begin + args.rows_per_part);
  const int64_t columns = args.columns;
  float sums[kSums][kHeld > 0 ? kHeld : 1][kCount] = {};
  for (int64_t first = begin; first < end; first += kWarps / args.warps) {
    const int64_t row = first + at.row;
    const bool present = row < end;
    const float mean = kCentred && present ? args.mean[row] : 0, rstd = present ? args.rstd[row] : 0;
    RowPacks<T, kWhole, kHeld> x(static_cast<const T*>(args.x) + row * columns, present ? columns : 0, at);
    RowPacks<T, kWhole, kHeld> dy(static_cast<const T*>(args.dy) + row * columns, present ? columns : 0, at);
    const T* const weight = static_cast<const T*>(args.weight);
    RowSums<T, kSums> row_sums;  // of g n, of g
    x.for_each([&](int64_t column, const Pack<T>& of_x, int number) {
      const Pack<T> up = dy.pack(column, number), by = load_pack<kWhole>(weight + column, columns - column);
      float of_g[kCount], of_gn[kCount];
      for (int i = 0; i < kCount; ++i) {
        const float normalized = (widen(of_x.of[i]) - mean) * rstd, g = widen(up.of[i]) * widen(by.of[i]);
        of_g[i] = g;
        of_gn[i] = g * normalized;
        if (kHeld > 0) {
          sums[0][number][i] = fmaf(widen(up.of[i]), normalized, sums[0][number][i]);
          if (kCentred) sums[kSums - 1][number][i] += widen(up.of[i]);
        }
      }
      row_sums.add(0, of_gn);
      if (kCentred) row_sums.add(kSums - 1, of_g);
    });
    float totals[kSums];
    row_sums.finish(args.warps, totals);
    const float mean_gn = totals[0] / static_cast<float>(columns);
    const float mean_g = kCentred ? totals[kSums - 1] / static_cast<float>(columns) : 0;
    x.compute_anew();
    dy.compute_anew();
    T* const dx = static_cast<T*>(args.dx) + row * columns;
    x.for_each([&](int64_t column, const Pack<T>& of_x, int number) {
      const Pack<T> up = dy.pack(column, number), by = load_pack<kWhole>(weight + column, columns - column);
      float values[kCount];
      for (int i = 0; i < kCount; ++i) {
        const float normalized = (widen(of_x.of[i]) - mean) * rstd, g = widen(up.of[i]) * widen(by.of[i]);
        values[i] = (g - mean_g - normalized * mean_gn) * rstd;
      }
      store_pack<kWhole>(dx + column, columns - column, values);
    });
  }
  if (kHeld > 0) store_part(sums, columns, at.lanes, args.partials);
}

// What is summed over rows, where a block does not hold them.
template <class T, bool kCentred, bool kWhole>
struct NormTerms {
  static constexpr int kCount = kPack<T>, kSums = kCentred ? 2 : 1;
  NormBackward args;
  __device__ void operator()(int64_t row, int64_t column, float (*sums)[kCount]) const {
    const int64_t at = row * args.columns + column, left = args.columns - column;
    const Pack<T> x = load_pack<kWhole>(static_cast<const T*>(args.x) + at, left);
    const Pack<T> dy = load_pack<kWhole>(static_cast<const T*>(args.dy) + at, left);
    const float mean = kCentred ? args.mean[row] : 0, rstd = args.rstd[row];
    for (int i = 0; i < kCount; ++i) {
      sums[0][i] = fmaf(widen(dy.of[i]), (widen(x.of[i]) - mean) * rstd, sums[0][i]);
      if (kCentred) sums[kSums - 1][i] += widen(dy.of[i]);
    }
  }
};

template <bool kCentred>
void norm_forward(const char* name, Element type, NormForward args, Stream stream) {
  if (args.rows == 0) return;
  with_element(type, [&](auto element) {
    using T = decltype(element);
    const RowLayout layout = row_layout(num_packs(args.columns, kPack<T>), kForwardPacks);
    args.warps = layout.warps;
    with_bool(are_whole<T>(args.columns, {args.x, args.weight, args.bias, args.y}), [&](auto whole) {
      with_bool(layout.held, [&](auto held) {
        launch(name, norm_forward_kernel < T, kCentred, whole.value, held.value ? kForwardPacks : 0 >,
               {num_blocks(args.rows, rows_at_once(layout)), kThreads, 0, stream}, args);
      });
    });
  });
}

template <bool kCentred>
void norm_backward(const char* name, Element type, NormBackward args, const ColumnSums& to, Stream stream) {
  constexpr int kSums = kCentred ? 2 : 1, kPacks = kCentred ? kCentredBackwardPacks : kBackwardPacks;
  const int64_t parts = num_parts(args.rows);
  args.rows_per_part = rows_of_part(args.rows);
  args.partials = to.partials;
  if (parts > 0) {
    with_element(type, [&](auto element) {
      using T = decltype(element);
      const RowLayout layout = row_layout(num_packs(args.columns, kPack<T>), kPacks);
      args.warps = layout.warps;
      with_bool(are_whole<T>(args.columns, {args.x, args.weight, args.dy, args.dx}), [&](auto whole) {
        with_bool(layout.held, [&](auto held) {
          launch(name, norm_backward_kernel < T, kCentred, whole.value, held.value ? kPacks : 0 >,
                 {static_cast<unsigned>(parts), kThreads, 0, stream}, args);
        });
        if (!layout.held)
          sum_parts(name, NormTerms<T, kCentred, whole.value>{args}, args.rows, args.columns, to.partials, stream);
      });
    });
  }
  add_parts(to.partials, parts, kSums * args.columns, to.sums, stream);
}

}  // namespace espalier::cuda
