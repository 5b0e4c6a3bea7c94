#include "kernels/cuda/attention_query_gradient.cuh"

namespace espalier::cuda {

void attention_query_gradient_fp16(const AttentionProblem& problem, const AttentionGradients& gradients,
                                   const float* row_dots, Stream stream) {
  launch_query_gradient<Fp16>(problem, gradients, row_dots, stream);
}

}  // namespace espalier::cuda
