// Numbers of 8 bits that linear layers round their operands to, and how (Micikevicius et al. 2022, "FP8 Formats for
// Deep Learning"): a tensor is scaled by the power of two 2^k, the largest with which its largest magnitude is still a
// number of the format, and rounded to nearest even, the format's denormal numbers included. No tensor depends on
// those before it (current scaling), and nothing but the rounding changes values: scales have no mantissa.
//
//   e4m3: 3 bits of mantissa, 2^-9 to 448; e5m2: 2 bits, 2^-16 to 57344
//
// k is at most kMostScale, so that 2^k and 2^-k are normal fp32 numbers: of tensors whose magnitudes are all below
// 2^-111 the smallest are rounded more coarsely. What is not finite becomes NaN. What is rounded lies in bf16 again,
// exactly; but for a magnitude above 1.9 * 2^127, of a tensor whose largest it is, which may become infinite.
//
// Plain header: the units compiled for one instruction set include it, and the CUDA kernels. `Unit` is a type of the
// unit that compiles a function, so that no linker gives one instruction set's to another.
#pragma once

#include <cstdint>
#include <cstring>

#include "spec/anywhere.h"

namespace espalier::spec {

// What linear layers round to: nothing; x, weights and gradients of results to e4m3; those gradients to e5m2.
enum class Fp8 { kNone, kE4M3, kHybrid };

enum class Fp8Format { kE4M3, kE5M2 };
inline Fp8Format gradient_format(Fp8 fp8) { return fp8 == Fp8::kHybrid ? Fp8Format::kE5M2 : Fp8Format::kE4M3; }

// The numbers of a format, divided by a scale.
struct Fp8Grid {
  float scale, inverse;   // 2^k, 2^-k
  uint32_t mantissa;      // bits of it
  uint32_t least_octave;  // of normal numbers, as the exponent of an fp32
};

template <class Unit>
struct Fp8Bits {
  static constexpr uint32_t kMagnitude = 0x7FFFFFFF, kInfinity = 0x7F800000, kNan = 0x7FC00000, kNanCode = 0x7F;
  static constexpr int kMostScale = 126;

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

  // `largest`: the bits of a bf16, those of the largest magnitude, infinity and NaN included.
  ESPALIER_ANYWHERE static Fp8Grid grid_of(uint32_t largest, Fp8Format format) {
    const bool is_e4m3 = format == Fp8Format::kE4M3;
    // Both formats end at 1.75 * 2^n.
    const int last_octave = is_e4m3 ? 8 : 15, octave = static_cast<int>(largest >> 7) - 127;
    const int fitting = last_octave - octave - ((largest & 0x7F) > 0x60 ? 1 : 0);
    const int k = fitting < kMostScale ? fitting : kMostScale;
    return {float_of(static_cast<uint32_t>(127 + k) << 23), float_of(static_cast<uint32_t>(127 - k) << 23),
            is_e4m3 ? 3u : 2u, is_e4m3 ? 121u : 113u};
  }

  // A scaled magnitude as a multiple of the distance between the numbers of its octave, or of the denormal ones.
  struct Rounded {
    float sum, base;  // their difference is the magnitude, rounded; that of their bits the multiple
    uint32_t octave;  // exponent of an fp32
  };
  ESPALIER_ANYWHERE static Rounded round(float magnitude, const Fp8Grid& grid) {
    const uint32_t exponent = bits_of(magnitude) >> 23;
    const uint32_t octave = exponent > grid.least_octave ? exponent : grid.least_octave;
    // Beside a number so large that its distances are those, the addition rounds to nearest even.
    const float base = float_of((octave + 23 - grid.mantissa) << 23);
    return {magnitude + base, base, octave};
  }

  // Bits of an fp32 that is x (bits of one, too), rounded to the grid.
  ESPALIER_ANYWHERE static uint32_t to_grid(uint32_t x, const Fp8Grid& grid) {
    const uint32_t magnitude = x & kMagnitude;
    const Rounded rounded = round(float_of(magnitude) * grid.scale, grid);
    const uint32_t result = bits_of((rounded.sum - rounded.base) * grid.inverse) | (x & ~kMagnitude);
    return magnitude < kInfinity ? result : kNan;
  }
  // The code of that number, before it is divided by the scale.
  ESPALIER_ANYWHERE static uint8_t to_code(uint32_t x, const Fp8Grid& grid) {
    const uint32_t magnitude = x & kMagnitude;
    const Rounded rounded = round(float_of(magnitude) * grid.scale, grid);
    const uint32_t multiple = bits_of(rounded.sum) - bits_of(rounded.base);
    const uint32_t code = ((rounded.octave - grid.least_octave) << grid.mantissa) + multiple;
    return static_cast<uint8_t>((magnitude < kInfinity ? code : kNanCode) | x >> 31 << 7);
  }
};

}  // namespace espalier::spec
