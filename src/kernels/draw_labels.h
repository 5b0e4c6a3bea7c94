// Labels drawn from softmax(logits), as Sophia-G's estimate of curvature wants them: the row whose logit plus Gumbel
// noise is the largest. So every shard of a vocabulary draws for itself, and the best of the shards' is the draw; and a
// logit that another layout rounds otherwise changes one label in as many as its rounding is small.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "tensor/rng.h"

namespace espalier::kernels {

// Where the noise comes from. Counter: word 0 = row of the vocabulary / 4, word 1 = position in the sample, word 2 =
// 2^16 * (sample number >> 32), word 3 = low half of the sample number, as dropout's outside attention. Word row % 4 of
// the block is w, and the noise -log(-log((w + 1/2) / 2^32)).
struct DrawSite {
  tensor::PhiloxKey key{};
  const std::vector<int64_t>* sample_numbers = nullptr;  // [b]; outlives the call
  int64_t first_position = 0;                            // of row 0 of the logits, where they are a part of a sequence
};

struct DrawnLabels {
  at::Tensor rows;    // [s, b] int64, of the whole vocabulary
  at::Tensor scores;  // [s, b] fp64: logit and noise of that row; minus infinity where the shard has no rows
};

// logits: [s, b, rows] fp32, contiguous, of the rows of the vocabulary from `first_row` on. Where no logit is a number
// the row is `first_row`.
DrawnLabels draw_labels(const at::Tensor& logits, int64_t first_row, const DrawSite& site);

}  // namespace espalier::kernels
