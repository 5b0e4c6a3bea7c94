// Rearranges bf16 operands into the panels of matmul_bf16.h.
#include <algorithm>

#include "kernels/matmul_bf16.h"

namespace espalier::kernels {
namespace {

// Sets block[place(i, j)] to row i, value j of the source, for 32 x 32 of them.
template <class Place>
inline void pack(const PackSource& source, int64_t rows, int64_t values, uint16_t* block, Place place) {
  if (rows < 32 || values < 32) std::fill_n(block, kBlockElements, uint16_t{0});
  for (int64_t i = 0; i < std::min<int64_t>(rows, 32); ++i) {
    const uint16_t* row = source.values + i * source.stride;
    for (int64_t j = 0; j < std::min<int64_t>(values, 32); ++j) block[place(i, j)] = row[j];
  }
}

// In a block of B: [2 halves][16 pairs of depths][16 columns][2 depths of the pair].
inline int64_t place_in_b(int64_t column, int64_t depth) {
  return column / 16 * (kBlockElements / 2) + depth / 2 * 32 + column % 16 * 2 + depth % 2;
}

}  // namespace

void pack_b_transposed(const PackSource& source, int64_t columns, int64_t depth, uint16_t* block) {
  pack(source, columns, depth, block, [](int64_t column, int64_t at) { return place_in_b(column, at); });
}

void pack_b(const PackSource& source, int64_t columns, int64_t depth, uint16_t* block) {
  pack(source, depth, columns, block, [](int64_t at, int64_t column) { return place_in_b(column, at); });
}

void pack_a_transposed(const PackSource& source, int64_t rows, int64_t depth, uint16_t* block) {
  pack(source, depth, rows, block, [](int64_t at, int64_t row) { return row * kDepthUnit + at; });
}

void pack_a(const PackSource& source, int64_t rows, int64_t depth, uint16_t* panel) {
  const int64_t stride = (depth + kDepthUnit - 1) / kDepthUnit * kDepthUnit;
  for (int64_t row = 0; row < kPanel; ++row) {
    uint16_t* const to = panel + row * stride;
    const int64_t count = row < rows ? depth : 0;
    std::copy_n(source.values + (row < rows ? row * source.stride : 0), count, to);
    std::fill_n(to + count, stride - count, uint16_t{0});
  }
}

}  // namespace espalier::kernels
