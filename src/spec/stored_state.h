// How moments of optimizers are stored in fewer bits than fp32. They are rounded at random, up or down, so that the
// mean is exact: what a step adds is often less than half a unit, and would be lost to the nearest.
//
// bf16: the upper half of an fp32.
// fp8: blocks of 32 neighbours in a row of the parameter, 33 bytes each: a scale s, then a code for each element. Code
// 0 is zero. A first moment's has a sign (bit 7) and a number c of 7 bits, a second moment's 8 bits of c; with the
// octaves that are below the largest, 15 or 31, as `top` the value is
//   2^(s - 127) 2^((c >> 3) - top) (1 + (c & 7) / 8)
// s is chosen anew whenever a block is stored, the least that its largest element fits. Scales are powers of two, so
// that what was rounded once and has not moved stays as it is. A second moment that is not zero never becomes it:
// updates divide by its root. s = 255: something in the block is not finite; it reads as NaN.
//
// Plain header: the units compiled for one instruction set include it, and the CUDA kernels. `Unit` is a type of the
// unit that compiles a function, so that no linker gives one instruction set's to another.
#pragma once

#include <cstdint>
#include <cstring>

#include "spec/optimizer_element.h"

namespace espalier::spec {

inline constexpr int64_t kMomentBlock = 32;  // elements that share a scale
inline constexpr int64_t kMomentBlockBytes = 1 + kMomentBlock;
inline constexpr uint32_t kBlockNotFinite = 255;               // the scale that says so
inline constexpr uint32_t kRandomBits = 16;                    // that a rounding takes
inline constexpr uint32_t kNearest = 1u << (kRandomBits - 1);  // as the random number: rounds to the nearest

template <class Unit>
struct MomentBits {
  static constexpr uint32_t kMagnitude = 0x7FFFFFFF, kInfinity = 0x7F800000, kNan = 0x7FC00000;
  // The smallest scale is so much above `top` that products with units are normal numbers.
  static constexpr uint32_t kLeastAboveTop = 25;

  ESPALIER_ANYWHERE static uint32_t top(bool has_sign) { return has_sign ? 15 : 31; }
  ESPALIER_ANYWHERE static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
  }
  ESPALIER_ANYWHERE static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }

  ESPALIER_ANYWHERE static uint16_t to_bf16(uint32_t bits, uint32_t random) {
    const uint32_t rounded = (bits + random) >> 16;
    return static_cast<uint16_t>((bits & kMagnitude) > kInfinity ? kNan >> 16 : rounded);
  }

  // `largest`: bits of the largest magnitude of a block.
  ESPALIER_ANYWHERE static uint32_t scale_of(uint32_t largest, bool has_sign) {
    const uint32_t exponent = (largest + 0xFFFFF) >> 23, least = top(has_sign) + kLeastAboveTop;
    return exponent < least ? least : exponent > kBlockNotFinite ? kBlockNotFinite : exponent;
  }
  ESPALIER_ANYWHERE static uint8_t to_code(uint32_t bits, uint32_t scale, bool has_sign, uint32_t random) {
    const uint32_t magnitude = bits & kMagnitude, octaves = (scale - top(has_sign)) << 3;
    const uint32_t least = (octaves + 1) << 20;  // bits of the smallest value but zero
    // 20 bits go; the 16 at random are the upper ones of them.
    const uint32_t rounded = ((magnitude + (random << 4 | 8)) >> 20) - octaves;
    const float chance = (static_cast<float>(random) + 0.5f) * 0x1p-16f;
    const bool is_least = has_sign ? float_of(magnitude) > float_of(least) * chance : magnitude > 0;
    const uint32_t code = magnitude >= least ? rounded : is_least ? 1 : 0;
    return static_cast<uint8_t>(code | (has_sign && code > 0 ? bits >> 31 << 7 : 0));
  }
  ESPALIER_ANYWHERE static uint32_t from_code(uint32_t code, uint32_t scale, bool has_sign) {
    const uint32_t sign = has_sign ? code >> 7 << 31 : 0, number = has_sign ? code & 0x7F : code;
    const uint32_t bits = ((scale - top(has_sign)) << 23) + (number << 20);
    return scale == kBlockNotFinite ? kNan : number == 0 ? 0 : bits | sign;
  }
};

// One block from and to floats. `random`: of each element, 16 bits from bit `shift` on.
template <class Unit>
inline void load_block(const uint8_t* block, bool has_sign, float* values) {
  using Bits = MomentBits<Unit>;
  const uint32_t scale = block[0];
  for (int64_t i = 0; i < kMomentBlock; ++i) values[i] = Bits::float_of(Bits::from_code(block[1 + i], scale, has_sign));
}
template <class Unit>
inline void store_block(const float* values, const uint32_t* random, uint32_t shift, bool has_sign, uint8_t* block) {
  using Bits = MomentBits<Unit>;
  uint32_t bits[kMomentBlock], largest = 0;
  memcpy(bits, values, sizeof bits);
  for (const uint32_t one : bits) largest = (one & Bits::kMagnitude) > largest ? one & Bits::kMagnitude : largest;
  const uint32_t scale = Bits::scale_of(largest, has_sign);
  block[0] = static_cast<uint8_t>(scale);
  for (int64_t i = 0; i < kMomentBlock; ++i)
    block[1 + i] = Bits::to_code(bits[i], scale, has_sign, random[i] >> shift & 0xFFFF);
}

}  // namespace espalier::spec
