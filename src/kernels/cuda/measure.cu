// What is measured of gradients: a list of tensors in one pass.
#include "kernels/cuda/lists.cuh"
#include "kernels/cuda/vectors.cuh"

namespace espalier::cuda {
namespace {

constexpr int kCount = kPack<float>;

struct Measuring {
  double squares = 0;
  int zeros = 0, not_finite = 0;  // of one thread

  __device__ void add(float value) {
    squares += static_cast<double>(value) * value;
    zeros += value == 0;
    not_finite += !(value - value == 0);  // NaN for infinity and NaN
  }
};

__device__ void store_sums(MeasuredParts* to, double squares, double zeros, double not_finite) {
  squares = block_sum(squares);
  zeros = block_sum(zeros);
  not_finite = block_sum(not_finite);
  if (threadIdx.x == 0) *to = {squares, zeros, not_finite};
}

// A thread has the same elements of an aligned tensor and of another, so that the sum is the same.
__global__ void __launch_bounds__(kThreads) measure_kernel(List<ListedMeasure> list, MeasuredParts* parts) {
  const ListPlace at(list);
  const ListedMeasure& listed = list.items[at.item];
  const int64_t end = min(listed.count, at.begin + kListed);
  Measuring sums;
  for (int64_t i = at.begin + threadIdx.x * kCount; i < end; i += kThreads * kCount) {
    if (listed.is_aligned && i + kCount <= end) {
      const auto pack = load_pack<true>(listed.values + i, kCount);
      for (const float value : pack.of) sums.add(value);
    } else {
      for (int64_t element = i; element < min(end, i + kCount); ++element) sums.add(listed.values[element]);
    }
  }
  store_sums(parts + blockIdx.x, sums.squares, sums.zeros, sums.not_finite);
}

// One block for each tensor adds what its blocks have measured.
__global__ void __launch_bounds__(kThreads)
    finish_measure_kernel(List<ListedMeasure> list, const MeasuredParts* parts, MeasuredParts* sums) {
  MeasuredParts own = {};
  for (int64_t part = list.first_blocks[blockIdx.x] + threadIdx.x; part < list.first_blocks[blockIdx.x + 1];
       part += kThreads) {
    own.squares += parts[part].squares;
    own.zeros += parts[part].zeros;
    own.not_finite += parts[part].not_finite;
  }
  store_sums(sums + blockIdx.x, own.squares, own.zeros, own.not_finite);
}

}  // namespace

void measure(const List<ListedMeasure>& list, MeasuredParts* parts, MeasuredParts* sums, Stream stream) {
  if (list.blocks > 0)
    launch("measure", measure_kernel, {static_cast<unsigned>(list.blocks), kThreads, 0, stream}, list, parts);
  launch("finish_measure", finish_measure_kernel, {num_blocks(list.count, 1), kThreads, 0, stream}, list, parts, sums);
}

}  // namespace espalier::cuda
