#include "kernels/cuda/paged_tiles.cuh"

namespace espalier::cuda {

void paged_tiles_fp16(const AttentionProblem& as_rows, const PagedProblem& problem, Stream stream) {
  launch_paged_tiles<Fp16>(as_rows, problem, stream);
}

}  // namespace espalier::cuda
