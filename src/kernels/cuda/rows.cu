// Column sums and dropout, by packs (vectors.cuh).
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/vectors.cuh"

namespace espalier::cuda {
namespace {

constexpr int kPartThreads = kThreads / kWarp;  // that share the parts of one column
constexpr int kAhead = 8;                       // parts that a thread reads before it adds

__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(const float* partials, int64_t parts, int64_t width, float* sums) {
  __shared__ float of_thread[kPartThreads][kWarp];
  const int64_t i = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0;
  for (int64_t first = threadIdx.y; first < parts && i < width; first += kAhead * kPartThreads) {
    float values[kAhead];
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      const int64_t part = first + ahead * kPartThreads;
      values[ahead] = part < parts ? partials[part * width + i] : 0;
    }
    for (const float value : values) sum += value;
  }
  of_thread[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || i >= width) return;
  float total = 0;
  for (int thread = 0; thread < kPartThreads; ++thread) total += of_thread[thread][threadIdx.x];
  sums[i] = total;
}

template <class T, bool kWhole>
struct Values {
  static constexpr int kCount = kTaken<T, kWhole>, kSums = 1;
  const T* x;
  int64_t columns;
  __device__ void operator()(int64_t row, int64_t column, float (*sums)[kCount]) const {
    const auto pack = load_some<kWhole, kCount>(x + row * columns + column, columns - column);
    for (int i = 0; i < kCount; ++i) sums[0][i] += widen(pack.of[i]);
  }
};

// mask(x + bias) * scale, and the residual.
template <class T, bool kWhole>
struct Dropped {
  static constexpr int kCount = kTaken<T, kWhole>, kSums = 1;
  Dropout args;
  Divisor samples;

  __device__ void mask(int64_t row, int64_t column, float (&values)[kCount]) const {
    const auto [position, sample] = samples.divide(row);
    const MaskPlace place{static_cast<uint32_t>(args.first_position + position), 0,
                          static_cast<uint64_t>(args.sample_numbers[sample])};
    const auto feature = static_cast<uint32_t>(column);
    uint32_t words[kCount];
    if constexpr (kCount == 1) {
      words[0] = mask_word(args.key[0], args.key[1], place, feature);
    } else {
      for (int first = 0; first < kCount; first += 4) {
        const PhiloxWords four = mask_words(args.key[0], args.key[1], place, (feature + first) / 4);
        for (int i = 0; i < 4; ++i) words[first + i] = four.word[i];
      }
    }
    for (int i = 0; i < kCount; ++i) values[i] = words[i] < args.threshold ? 0 : values[i] * args.scale;
  }
  __device__ void operator()(int64_t row, int64_t column, float (*sums)[kCount]) const {
    const int64_t at = row * args.columns + column, left = args.columns - column;
    const auto x = load_some<kWhole, kCount>(static_cast<const T*>(args.x) + at, left);
    Pack<T, kCount> residual;
    if (args.residual != nullptr) residual = load_some<kWhole, kCount>(static_cast<const T*>(args.residual) + at, left);
    float values[kCount];
    for (int i = 0; i < kCount; ++i) values[i] = widen(x.of[i]);
    if (args.bias != nullptr) {
      const auto bias = load_some<kWhole, kCount>(static_cast<const T*>(args.bias) + column, left);
      for (int i = 0; i < kCount; ++i) values[i] += widen(bias.of[i]);
    }
    if (args.masked) mask(row, column, values);
    for (int i = 0; i < kCount; ++i) sums[0][i] += values[i];
    if (args.residual != nullptr)
      for (int i = 0; i < kCount; ++i) values[i] += widen(residual.of[i]);
    store_pack<kWhole>(static_cast<T*>(args.y) + at, left, values);
  }
};

}  // namespace

void add_parts(const float* partials, int64_t parts, int64_t width, float* sums, Stream stream) {
  if (width == 0) return;
  const dim3 block(kWarp, kPartThreads);
  launch("add_parts", add_parts_kernel, {num_blocks(width, kWarp), block, 0, stream}, partials, parts, width, sums);
}

void column_sums(Element type, const void* x, int64_t rows, int64_t columns, const ColumnSums& to, Stream stream) {
  with_element(type, [&](auto element) {
    using T = decltype(element);
    with_bool(are_whole<T>(columns, {x}), [&](auto whole) {
      launch_sums("column_sums", Values<T, whole.value>{static_cast<const T*>(x), columns}, rows, columns, to, stream);
    });
  });
}

void dropout(Element type, const Dropout& args, int64_t rows, const ColumnSums* sums, Stream stream) {
  ESPALIER_CHECK(rows <= INT32_MAX, rows, " rows");
  with_element(type, [&](auto element) {
    using T = decltype(element);
    with_bool(are_whole<T>(args.columns, {args.x, args.bias, args.residual, args.y}), [&](auto whole) {
      const Dropped<T, whole.value> dropped{args, Divisor(rows == 0 ? 1 : args.num_samples)};
      launch_packs("dropout", dropped, rows, args.columns, sums, stream);
    });
  });
}

}  // namespace espalier::cuda
