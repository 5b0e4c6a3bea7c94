// Column sums, dropout: one thread for each element, and sums over rows as elements.cuh divides them.
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/elements.cuh"

namespace espalier::cuda {
namespace {

__global__ void add_parts_kernel(const float* partials, int64_t parts, int64_t width, float* sums) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= width) return;
  float sum = 0;
  for (int64_t part = 0; part < parts; ++part) sum += partials[part * width + i];
  sums[i] = sum;
}

template <class T>
struct Values {
  const T* x;
  int64_t columns;
  __device__ void operator()(int64_t row, int64_t column, float* terms) const {
    terms[0] = widen(x[row * columns + column]);
  }
};

// mask(x + bias) * scale
template <class T>
struct Dropped {
  Dropout args;
  __device__ float at(int64_t row, int64_t column) const {
    const int64_t i = row * args.columns + column;
    float value = widen(static_cast<const T*>(args.x)[i]);
    if (args.bias != nullptr) value += widen(static_cast<const T*>(args.bias)[column]);
    if (!args.masked) return value;
    const MaskPlace place{static_cast<uint32_t>(args.first_position + row / args.num_samples), 0,
                          static_cast<uint64_t>(args.sample_numbers[row % args.num_samples])};
    const uint32_t word = mask_word(args.key[0], args.key[1], place, static_cast<uint32_t>(column));
    return word < args.threshold ? 0 : value * args.scale;
  }
  __device__ void operator()(int64_t i) const {
    float value = at(i / args.columns, i % args.columns);
    if (args.residual != nullptr) value += widen(static_cast<const T*>(args.residual)[i]);
    store(static_cast<T*>(args.y) + i, value);
  }
  __device__ void operator()(int64_t row, int64_t column, float* terms) const { terms[0] = at(row, column); }
};

}  // namespace

void add_parts(const float* partials, int64_t parts, int64_t width, float* sums, Stream stream) {
  launch("add_parts", add_parts_kernel, {num_blocks(width, kThreads), kThreads, 0, stream}, partials, parts, width,
         sums);
}

void column_sums(Element type, const void* x, int64_t rows, int64_t columns, const ColumnSums& to, Stream stream) {
  with_element(type, [&](auto element) {
    using T = decltype(element);
    sum_over_rows<1>(Values<T>{static_cast<const T*>(x), columns}, rows, columns, to, stream);
  });
}

void dropout(Element type, const Dropout& args, int64_t rows, const ColumnSums* sums, Stream stream) {
  with_element(type, [&](auto element) {
    const Dropped<decltype(element)> dropped{args};
    launch_for_each("dropout", dropped, rows * args.columns, stream);
    if (sums != nullptr) sum_over_rows<1>(dropped, rows, args.columns, *sums, stream);
  });
}

}  // namespace espalier::cuda
