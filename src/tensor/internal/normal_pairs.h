// Pairs of values of a normal distribution, a block at a time (tensor/rng.h, fill_normal).
#pragma once

#include <cstdint>

#include "tensor/rng.h"

namespace espalier::tensor::internal {

inline constexpr int64_t kPairsOfBlock = 64;

// values[2 i] and values[2 i + 1]: the cosine and the sine of counter first_pair + i. The same bits on every
// instruction set: their loops are the same, and nothing in them is contracted or reordered.
namespace generic {
void normal_pairs(PhiloxKey key, double standard_deviation, uint64_t first_pair, float* values);
}
namespace avx2 {
void normal_pairs(PhiloxKey key, double standard_deviation, uint64_t first_pair, float* values);
}
namespace avx512 {
void normal_pairs(PhiloxKey key, double standard_deviation, uint64_t first_pair, float* values);
}

}  // namespace espalier::tensor::internal
