// Counter-based randomness: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
//
// A draw is a pure function of (key, counter). Weights and dropout masks therefore do not depend on the layout, and
// no generator state needs saving. The scheme and its test vectors are in docs/numerics.md; kScheme is stored with
// every checkpoint. Plain header: kernels compiled for one instruction set may include it.
#pragma once

#include <cstdint>

namespace espalier::tensor {

inline constexpr int kRandomScheme = 1;

struct PhiloxKey {
  uint32_t word[2];
};
struct PhiloxBlock {
  uint32_t word[4];
};

// The four words of one counter. Ten rounds.
PhiloxBlock philox4x32(PhiloxKey key, PhiloxBlock counter);

// Key of a site: the 64-bit hash (XXH3) of seed and name, for example "dropout/layers.7.mlp" or "init/layers.7...".
PhiloxKey philox_key(uint64_t seed, const char* site_name);

// Fills `count` values of a normal distribution for the row-major elements first .. first+count of a tensor:
// element i comes from counter i / 2 by Box-Muller in double (i even: cosine, odd: sine), then rounded to float.
void fill_normal(PhiloxKey key, double standard_deviation, int64_t first, int64_t count, float* values);

}  // namespace espalier::tensor
