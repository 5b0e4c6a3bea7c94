// Sixteen floats for any processor, one lane after another: what every other vector must equal bit for bit. Its fused
// multiply-add is libm's (exact, slow where the processor has none).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "kernels/internal/half.h"
#include "kernels/internal/row_kernels.h"
#include "tensor/rng.h"

namespace espalier::kernels::generic {

struct Floats {
  static constexpr int64_t kWidth = 16;
  // Rows of two matrices whose products fit into the registers at once.
  static constexpr int kTileRows = 2, kTileColumns = 2;
  // Of panels (wide_panels.h): rows, and vectors of a row.
  static constexpr int kPanelRows = 2, kPanelVectors = 1;
  static constexpr int kPageVectors = 1;  // that four queries are multiplied with at once (paged_attention_rows.h)
  float v[kWidth];

  // The vector whose lane i is f(i).
  template <class F>
  static Floats lanes(const F& f) {
    Floats result;
    for (int i = 0; i < kWidth; ++i) result.v[i] = f(i);
    return result;
  }
  static Floats all(float value) {
    return lanes([&](int) { return value; });
  }
  static Floats load(const float* from) {
    return lanes([&](int i) { return from[i]; });
  }
  static Floats load(const Bf16* from) {
    return lanes([&](int i) { return std::bit_cast<float>(uint32_t{from[i].bits} << 16); });
  }
  static Floats load(const Fp16* from) {
    return lanes([&](int i) { return static_cast<float>(std::bit_cast<Half>(from[i].bits)); });
  }
  static Floats load(const int8_t* from) {
    return lanes([&](int i) { return static_cast<float>(from[i]); });
  }
  void store(float* to) const {
    for (int i = 0; i < kWidth; ++i) to[i] = v[i];
  }
  void store(Bf16* to) const {
    for (int i = 0; i < kWidth; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(v[i]);
      const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;  // to nearest even
      to[i].bits = static_cast<uint16_t>(std::isnan(v[i]) ? 0x7FC0 : rounded);
    }
  }
  void store(Fp16* to) const {
    for (int i = 0; i < kWidth; ++i) to[i].bits = std::bit_cast<uint16_t>(static_cast<Half>(v[i]));
  }

  // This vector where words[lane] >= threshold, else zero.
  Floats keep(const uint32_t* words, uint32_t threshold) const {
    return lanes([&](int i) { return words[i] >= threshold ? v[i] : 0.0f; });
  }
};

inline Floats operator+(Floats a, Floats b) {
  return Floats::lanes([&](int i) { return a.v[i] + b.v[i]; });
}
inline Floats operator-(Floats a, Floats b) {
  return Floats::lanes([&](int i) { return a.v[i] - b.v[i]; });
}
inline Floats operator*(Floats a, Floats b) {
  return Floats::lanes([&](int i) { return a.v[i] * b.v[i]; });
}
inline Floats operator/(Floats a, Floats b) {
  return Floats::lanes([&](int i) { return a.v[i] / b.v[i]; });
}
inline Floats fma(Floats a, Floats b, Floats c) {
  return Floats::lanes([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
inline Floats sqrt(Floats a) {
  return Floats::lanes([&](int i) { return std::sqrt(a.v[i]); });
}
// b when either is NaN.
inline Floats max(Floats a, Floats b) {
  return Floats::lanes([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Floats min(Floats a, Floats b) {
  return Floats::lanes([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline Floats abs(Floats a) {
  return Floats::lanes([&](int i) { return std::fabs(a.v[i]); });
}
inline Floats negative_abs(Floats a) {
  return Floats::lanes([&](int i) { return -std::fabs(a.v[i]); });
}
inline Floats select_positive(Floats x, Floats yes, Floats no) {
  return Floats::lanes([&](int i) { return x.v[i] > 0 ? yes.v[i] : no.v[i]; });
}
inline bool any_positive(Floats a) {
  return std::any_of(std::begin(a.v), std::end(a.v), [](float lane) { return lane > 0; });
}
// Lanes 2i and 2i + 1 exchanged.
inline Floats swap_pairs(Floats a) {
  return Floats::lanes([&](int i) { return a.v[i ^ 1]; });
}
// The low nine bits of each lane moved to where a float has its sign and exponent.
inline Floats low_bits_to_exponent(Floats a) {
  return Floats::lanes([&](int i) { return std::bit_cast<float>(std::bit_cast<uint32_t>(a.v[i]) << 23); });
}
// Afterwards lane i of rows[j] is what lane j of rows[i] was.
inline void transpose(Floats (&rows)[16]) {
  float lanes[16][16], turned[16][16];
  for (int i = 0; i < 16; ++i) rows[i].store(lanes[i]);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) turned[j][i] = lanes[i][j];
  for (int i = 0; i < 16; ++i) rows[i] = Floats::load(turned[i]);
}
inline float first_lane(Floats a) { return a.v[0]; }
// Halves are added until one lane is left.
inline float sum(Floats a) {
  for (int half = Floats::kWidth / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
  }
  return a.v[0];
}

inline void philox_words(Floats, const PhiloxRoundKeys& keys, uint32_t first, uint32_t word1, uint32_t word2,
                         uint32_t word3, uint32_t* words) {
  for (uint32_t counter = 0; counter < kPhiloxWords / 4; ++counter, words += 4) {
    const tensor::PhiloxBlock block =
        tensor::philox4x32({{keys.first[0], keys.second[0]}}, {{first + counter, word1, word2, word3}});
    for (int i = 0; i < 4; ++i) words[i] = block.word[i];
  }
}

}  // namespace espalier::kernels::generic
