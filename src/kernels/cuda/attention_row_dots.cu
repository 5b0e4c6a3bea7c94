// rowsum(dO O) of every query, for the gradients of attention on tensor cores: 16 bytes of a row for each lane.
#include "kernels/cuda/attention_pair.cuh"
#include "kernels/cuda/attention_tensor_cores.h"

namespace espalier::cuda {
namespace {

__device__ const char* at(const Pair& pair, const AttentionOperand& operand, int query, int access) {
  return static_cast<const char*>(operand.data) + pair.offset(operand, query) * 2 + access * 16;
}

template <class T>
__device__ void read_8(T (&values)[8], const char* from) {
  const Bytes16 bytes = read_16(from);
  memcpy(values, &bytes, sizeof values);
}

// kLanes of a warp have a row; queries are numbered head by head, as the dots are.
template <class T, int kLanes>
__global__ void row_dots_kernel(AttentionProblem problem, AttentionOperand d_result, float* row_dots, int64_t count) {
  const int64_t number = int64_t{blockIdx.x} * (kThreads / kLanes) + threadIdx.x / kLanes;
  const int access = threadIdx.x % kLanes;
  float sum = 0;
  if (number < count && access * 8 < problem.head_size) {
    const Pair pair = pair_of(problem, number / problem.num_queries);
    const int query = static_cast<int>(number % problem.num_queries);
    T results[8], gradients[8];
    read_8(results, at(pair, problem.result, query, access));
    read_8(gradients, at(pair, d_result, query, access));
    ESPALIER_UNROLL
    for (int i = 0; i < 8; ++i) sum = fmaf(widen(results[i]), widen(gradients[i]), sum);
  }
  for (int distance = kLanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (number < count && access == 0) row_dots[number] = sum;
}

template <class T, int kLanes>
void launch_row_dots(const AttentionProblem& problem, const AttentionOperand& d_result, float* row_dots,
                     Stream stream) {
  const int64_t count = problem.batch * problem.heads() * problem.num_queries;
  launch("attention_row_dots_by_16_bytes", row_dots_kernel<T, kLanes>,
         {num_blocks(count, kThreads / kLanes), kThreads, 0, stream}, problem, d_result, row_dots, count);
}

template <class T>
void launch_row_dots(const AttentionProblem& problem, const AttentionOperand& d_result, float* row_dots,
                     Stream stream) {
  if (problem.head_size <= 64) return launch_row_dots<T, 8>(problem, d_result, row_dots, stream);
  if (problem.head_size <= 128) return launch_row_dots<T, 16>(problem, d_result, row_dots, stream);
  launch_row_dots<T, 32>(problem, d_result, row_dots, stream);
}

}  // namespace

void attention_row_dots(const AttentionProblem& problem, const AttentionOperand& d_result, float* row_dots,
                        Stream stream) {
  if (problem.type == kernels::AttentionType::kBFloat16)
    launch_row_dots<Bf16>(problem, d_result, row_dots, stream);
  else
    launch_row_dots<Fp16>(problem, d_result, row_dots, stream);
}

}  // namespace espalier::cuda
