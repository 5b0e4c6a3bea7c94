#include "kernels/cuda/attention_forward.cuh"

namespace espalier::cuda {

void attention_forward_fp16(const AttentionProblem& problem, Stream stream) {
  launch_attention_forward<Fp16>(problem, stream);
}

}  // namespace espalier::cuda
