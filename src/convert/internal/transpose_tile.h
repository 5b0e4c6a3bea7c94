// A square of elements turned: what copying a transposed matrix is made of.
#pragma once

#include <cstdint>

namespace espalier::convert {

inline constexpr int64_t kTileSize = 64;

// to[i][j] = from[j][i] for i and j below kTileSize, rows without gaps, elements of 1, 2, 4 or 8 bytes. The two must
// not overlap.
void transpose_tile(int64_t element_bytes, const void* from, void* to);

}  // namespace espalier::convert
