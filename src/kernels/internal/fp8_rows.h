// Rounding of bf16 to the grid of an fp8 format (spec/fp8.h), as loops that the compiler turns into vectors of the
// unit's instruction set.
#pragma once

#include <cstdint>

#include "kernels/internal/row_kernels.h"
#include "spec/fp8.h"

namespace espalier::kernels {

// As bits without sign, whose order is that of magnitudes: then infinity, then NaN.
template <class V>
uint32_t largest_magnitude(const Bf16* values, int64_t count) {
  uint16_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t magnitude = values[i].bits & 0x7FFF;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

template <class V>
void round_to_grid(const spec::Fp8Grid& grid, const Bf16* values, int64_t count, Bf16* rounded) {
  const spec::Fp8Grid local = grid;  // not what `rounded` might point at
  for (int64_t i = 0; i < count; ++i)
    rounded[i].bits = static_cast<uint16_t>(spec::Fp8Bits<V>::to_grid(uint32_t{values[i].bits} << 16, local) >> 16);
}

}  // namespace espalier::kernels
