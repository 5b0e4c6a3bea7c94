#include "kernels/cuda/attention_forward.cuh"

namespace espalier::cuda {

void attention_forward_bf16(const AttentionProblem& problem, Stream stream) {
  launch_attention_forward<Bf16>(problem, stream);
}

}  // namespace espalier::cuda
