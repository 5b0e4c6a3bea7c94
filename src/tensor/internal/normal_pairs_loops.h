// The loops of normal_pairs(), for units that are compiled for one instruction set: the compiler makes vectors of them.
//
// Series instead of libm's functions, which have no vectors, and whose last bits differ from one machine to another.
// They end where the next term is below 2^-54 of the sum; the result is rounded to float.
#pragma once

#include "tensor/internal/normal_pairs.h"

namespace espalier::tensor::internal {
namespace {

constexpr int kCount = static_cast<int>(kPairsOfBlock);

struct BlockWords {
  uint32_t word[4][kCount];
};

// philox4x32(), of kCount counters at once.
inline void draw_words(PhiloxKey key, uint64_t first_pair, BlockWords& block) {
  auto& [x0, x1, x2, x3] = block.word;
  for (int i = 0; i < kCount; ++i) {
    const uint64_t pair = first_pair + static_cast<uint64_t>(i);
    x0[i] = static_cast<uint32_t>(pair), x1[i] = static_cast<uint32_t>(pair >> 32), x2[i] = 0, x3[i] = 0;
  }
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kCount; ++i) {
      const uint64_t product0 = uint64_t{0xD2511F53u} * x0[i], product1 = uint64_t{0xCD9E8D57u} * x2[i];
      x0[i] = static_cast<uint32_t>(product1 >> 32) ^ x1[i] ^ key.word[0];
      x2[i] = static_cast<uint32_t>(product0 >> 32) ^ x3[i] ^ key.word[1];
      x1[i] = static_cast<uint32_t>(product1);
      x3[i] = static_cast<uint32_t>(product0);
    }
    key.word[0] += 0x9E3779B9u;
    key.word[1] += 0xBB67AE85u;
  }
}

// Of a whole number below 2^52: its bits under those of 2^52.
inline double to_double(uint64_t whole) { return __builtin_bit_cast(double, whole | 0x4330000000000000u) - 0x1p52; }

// The upper 53 of 64 bits as a whole number.
inline double upper_bits(uint32_t high, uint32_t low) { return to_double(high) * 0x1p21 + to_double(low >> 11); }

// Natural logarithm, 0 < x < 2: x = 2^e m with sqrt(1/2) <= m < sqrt(2), and log m = 2 artanh((m - 1) / (m + 1)).
inline double logarithm(double x) {
  constexpr uint64_t kOne = 0x3FF0000000000000u, kRootOfHalf = 0x3FE6A09E667F3BCDu;
  const uint64_t bits = __builtin_bit_cast(uint64_t, x);
  const uint64_t exponent = (bits + (kOne - kRootOfHalf)) >> 52;  // e + 1023
  const double m = __builtin_bit_cast(double, bits - (exponent << 52) + kOne);
  const double s = (m - 1) / (m + 1), z = s * s;
  double series = 1.0 / 23;
  for (int n = 21; n >= 3; n -= 2) series = series * z + 1.0 / n;
  const double log_of_m = 2 * s + 2 * s * z * series;
  return (to_double(exponent) - 1023) * 0x1.62e42fefa39efp-1 + log_of_m;
}

// Of the angle 2 pi turn, 0 <= turn < 1: from the nearest quarter of a turn on.
inline void cosine_and_sine(double turn, double& cosine, double& sine) {
  constexpr double kShift = 0x1.8p52;  // added to a small number, it leaves the nearest whole one in the last bits
  const double shifted = turn * 4 + kShift;
  const uint64_t quarter = __builtin_bit_cast(uint64_t, shifted);
  const double x = (turn - (shifted - kShift) * 0.25) * 0x1.921fb54442d18p2, z = x * x;  // |x| <= pi / 4
  double c = 1, s = 1;
  for (int n = 18; n >= 2; n -= 2) c = 1 - z * (1.0 / (n * (n - 1))) * c;
  for (int n = 17; n >= 3; n -= 2) s = 1 - z * (1.0 / (n * (n - 1))) * s;
  s *= x;
  const bool is_odd = (quarter & 1) != 0;
  const double along = is_odd ? s : c, across = is_odd ? c : s;
  cosine = ((quarter + 1) & 2) != 0 ? -along : along;
  sine = (quarter & 2) != 0 ? -across : across;
}

inline void fill_pairs(PhiloxKey key, double standard_deviation, uint64_t first_pair, float* values) {
  BlockWords block;
  draw_words(key, first_pair, block);
  const auto& [x0, x1, x2, x3] = block.word;
  float cosines[kCount], sines[kCount];
  for (int i = 0; i < kCount; ++i) {
    // 53-bit uniforms; the first in (0, 1] so that its logarithm is finite.
    const double u = (upper_bits(x0[i], x1[i]) + 1) * 0x1p-53, turn = upper_bits(x2[i], x3[i]) * 0x1p-53;
    const double radius = standard_deviation * __builtin_sqrt(-2 * logarithm(u));
    double cosine, sine;
    cosine_and_sine(turn, cosine, sine);
    cosines[i] = static_cast<float>(radius * cosine);
    sines[i] = static_cast<float>(radius * sine);
  }
  for (int i = 0; i < kCount; ++i) values[2 * i] = cosines[i], values[2 * i + 1] = sines[i];
}

}  // namespace
}  // namespace espalier::tensor::internal
