#include "kernels/cuda/attention_key_gradient.cuh"

namespace espalier::cuda {

void attention_key_gradient_bf16(const AttentionProblem& problem, const AttentionGradients& gradients,
                                 const float* row_dots, Stream stream) {
  launch_key_gradient<Bf16>(problem, gradients, row_dots, stream);
}

}  // namespace espalier::cuda
