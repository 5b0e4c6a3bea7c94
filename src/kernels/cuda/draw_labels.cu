// Draws from logits (kernels/draw_labels.h).
#include "kernels/cuda/element_math.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/internal/gumbel.h"

namespace espalier::cuda {
namespace {

// One block for each token. Of equal scores the lower row's.
__global__ void draw_kernel(LabelDraws args) {
  __shared__ double scores[kThreads];
  __shared__ int64_t rows[kThreads];
  const int64_t token = blockIdx.x;
  const float* const logits = args.logits + token * args.num_rows;
  const MaskPlace place{static_cast<uint32_t>(args.first_position + token / args.num_samples), 0,
                        static_cast<uint64_t>(args.sample_numbers[token % args.num_samples])};
  double best = -INFINITY;
  int64_t best_row = args.first_row;
  for (int64_t i = threadIdx.x; i < args.num_rows; i += kThreads) {
    const auto row = static_cast<uint32_t>(args.first_row + i);
    const double score = logits[i] + kernels::gumbel(mask_word(args.key[0], args.key[1], place, row));
    if (score > best) best = score, best_row = row;
  }
  scores[threadIdx.x] = best;
  rows[threadIdx.x] = best_row;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int thread = 1; thread < kThreads; ++thread)
    if (scores[thread] > best || (scores[thread] == best && rows[thread] < best_row))
      best = scores[thread], best_row = rows[thread];
  args.rows[token] = best_row;
  args.scores[token] = best;
}

}  // namespace

void draw_labels(const LabelDraws& args, int64_t tokens, Stream stream) {
  if (tokens == 0) return;
  launch("draw_labels", draw_kernel, {num_blocks(tokens, 1), kThreads, 0, stream}, args);
}

}  // namespace espalier::cuda
