// What stored_state.h says of stored moments, restated in double from its text: all numbers that a code can stand for,
// and of the two beside a value the one that 16 random bits choose.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace espalier::spec::reference {

// The upper of two neighbours where the part of the way to it and the random number come to 1.
inline double choose(double value, double low, double high, uint32_t random) {
  return (value - low) / (high - low) + (random + 0.5) / 65536 >= 1 ? high : low;
}

inline double rounded_bf16(double value, uint32_t random) {
  if (value == 0) return 0;
  const double unit = std::ldexp(1.0, std::ilogb(value) - 7), low = std::floor(std::abs(value) / unit) * unit;
  // All bits of an fp32 that are lost count, so the random number alone decides: no half.
  const double magnitude = (std::abs(value) - low) / unit + random / 65536.0 >= 1 ? low + unit : low;
  return std::copysign(magnitude, value);
}

// Of a block whose values are finite.
inline std::vector<double> rounded_block(const std::vector<float>& values, bool has_sign,
                                         const std::vector<uint32_t>& random) {
  double largest = 0;
  for (const float value : values) largest = std::max<double>(largest, std::abs(value));
  const int octaves = has_sign ? 15 : 31;
  int exponent = octaves + 25 - 127;
  while (largest > 1.875 * std::ldexp(1.0, exponent)) ++exponent;
  std::vector<double> numbers = {0};
  for (int octave = exponent - octaves; octave <= exponent; ++octave)
    for (int eighths = 0; eighths < 8; ++eighths) numbers.push_back(std::ldexp(1 + eighths / 8.0, octave));
  numbers.erase(numbers.begin() + 1);  // whose code is that of zero
  std::vector<double> rounded;
  for (size_t at = 0; at < values.size(); ++at) {
    const double magnitude = std::abs(values[at]);
    const auto above = std::upper_bound(numbers.begin(), numbers.end(), magnitude);
    const double low = above[-1], high = above == numbers.end() ? low : *above;
    double chosen = low == magnitude ? low : choose(magnitude, low, high, random[at]);
    if (low == 0 && magnitude > 0) chosen = !has_sign || magnitude / high > (random[at] + 0.5) / 65536 ? high : 0;
    rounded.push_back(std::copysign(chosen, values[at]));
  }
  return rounded;
}

}  // namespace espalier::spec::reference
