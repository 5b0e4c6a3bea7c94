// Sixteen floats in four NEON registers. The same operations, with the same bits, as vector_generic.h.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/internal/row_kernels.h"

namespace espalier::kernels::neon {

struct Floats {
  static constexpr int64_t kWidth = 16;
  // Rows of two matrices whose products fit into the 32 registers at once.
  static constexpr int kTileRows = 2, kTileColumns = 2;
  // Of panels (wide_panels.h): rows, and vectors of a row.
  static constexpr int kPanelRows = 6, kPanelVectors = 1;
  static constexpr int kPageVectors = 1;  // that four queries are multiplied with at once (paged_attention_rows.h)
  float32x4_t v[4];

  // The vector whose lanes 4i to 4i + 3 are f(i).
  template <class F>
  static Floats quarters(const F& f) {
    return {{f(0), f(1), f(2), f(3)}};
  }
  static Floats all(float value) {
    return quarters([&](int) { return vdupq_n_f32(value); });
  }
  static Floats load(const float* from) {
    return quarters([&](int i) { return vld1q_f32(from + 4 * i); });
  }
  static Floats load(const Bf16* from) {
    return quarters([&](int i) {
      return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const uint16_t*>(from) + 4 * i), 16));
    });
  }
  static Floats load(const Fp16* from) {
    return quarters([&](int i) {
      return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(from) + 4 * i)));
    });
  }
  static Floats load(const int8_t* from) {
    const int8x16_t bytes = vld1q_s8(from);
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
             vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
  }
  void store(float* to) const {
    for (int i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, v[i]);
  }
  void store(Bf16* to) const {
    for (int i = 0; i < 4; ++i) vst1_u16(reinterpret_cast<uint16_t*>(to) + 4 * i, narrow(v[i]));
  }
  void store(Fp16* to) const {
    for (int i = 0; i < 4; ++i)
      vst1_u16(reinterpret_cast<uint16_t*>(to) + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(v[i])));
  }

  // This vector where words[lane] >= threshold, else zero.
  Floats keep(const uint32_t* words, uint32_t threshold) const {
    return quarters([&](int i) {
      const uint32x4_t kept = vcgeq_u32(vld1q_u32(words + 4 * i), vdupq_n_u32(threshold));
      return vreinterpretq_f32_u32(vandq_u32(kept, vreinterpretq_u32_f32(v[i])));
    });
  }

 private:
  // The upper halves, rounded to nearest even; what is no number becomes the one NaN.
  static uint16x4_t narrow(float32x4_t value) {
    const uint32x4_t bits = vreinterpretq_u32_f32(value);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF)));
    const uint32x4_t is_number = vceqq_f32(value, value);
    return vshrn_n_u32(vbslq_u32(is_number, rounded, vdupq_n_u32(0x7FC00000)), 16);
  }
};

// Each quarter of the result by f(quarter of a, quarter of b).
template <class F>
inline Floats by_quarters(const Floats& a, const Floats& b, const F& f) {
  return Floats::quarters([&](int i) { return f(a.v[i], b.v[i]); });
}

inline Floats operator+(Floats a, Floats b) {
  return Floats::quarters([&](int i) { return a.v[i] + b.v[i]; });
}
inline Floats operator-(Floats a, Floats b) {
  return Floats::quarters([&](int i) { return a.v[i] - b.v[i]; });
}
inline Floats operator*(Floats a, Floats b) {
  return Floats::quarters([&](int i) { return a.v[i] * b.v[i]; });
}
inline Floats operator/(Floats a, Floats b) {
  return Floats::quarters([&](int i) { return a.v[i] / b.v[i]; });
}
inline Floats fma(Floats a, Floats b, Floats c) {
  return Floats::quarters([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
inline Floats sqrt(Floats a) {
  return Floats::quarters([&](int i) { return vsqrtq_f32(a.v[i]); });
}
// a > b ? a : b and a < b ? a : b, so b when either is NaN (vmaxq_f32 would give the NaN).
inline Floats max(Floats a, Floats b) {
  return by_quarters(a, b, [](float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); });
}
inline Floats min(Floats a, Floats b) {
  return by_quarters(a, b, [](float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); });
}
inline Floats abs(Floats a) {
  return Floats::quarters([&](int i) { return vabsq_f32(a.v[i]); });
}
inline Floats negative_abs(Floats a) {
  return Floats::quarters(
      [&](int i) { return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(a.v[i]), vdupq_n_u32(0x80000000))); });
}
inline Floats select_positive(Floats x, Floats yes, Floats no) {
  return Floats::quarters([&](int i) { return vbslq_f32(vcgtzq_f32(x.v[i]), yes.v[i], no.v[i]); });
}
inline bool any_positive(Floats a) {
  const uint32x4_t low = vorrq_u32(vcgtzq_f32(a.v[0]), vcgtzq_f32(a.v[1]));
  const uint32x4_t high = vorrq_u32(vcgtzq_f32(a.v[2]), vcgtzq_f32(a.v[3]));
  return vmaxvq_u32(vorrq_u32(low, high)) != 0;
}
// Lanes 2i and 2i + 1 exchanged.
inline Floats swap_pairs(Floats a) {
  return Floats::quarters([&](int i) { return vrev64q_f32(a.v[i]); });
}
// The low nine bits of each lane moved to where a float has its sign and exponent.
inline Floats low_bits_to_exponent(Floats a) {
  return Floats::quarters([&](int i) { return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(a.v[i]), 23)); });
}
// Afterwards lane i of rows[j] is what lane j of rows[i] was.
inline void transpose(Floats (&rows)[16]) {
  float lanes[16][16], turned[16][16];
  for (int i = 0; i < 16; ++i) rows[i].store(lanes[i]);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) turned[j][i] = lanes[i][j];
  for (int i = 0; i < 16; ++i) rows[i] = Floats::load(turned[i]);
}
inline float first_lane(Floats a) { return vgetq_lane_f32(a.v[0], 0); }
// Halves are added until one lane is left.
inline float sum(Floats a) {
  const float32x4_t four = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

// Four counters, one in each lane.
struct PhiloxFour {
  uint32x4_t x0, x1, x2, x3;

  void round(uint32_t key0, uint32_t key1) {
    uint32x4_t low0, high0, low1, high1;
    multiply(x0, 0xD2511F53, low0, high0);
    multiply(x2, 0xCD9E8D57, low1, high1);
    x0 = veorq_u32(veorq_u32(high1, x1), vdupq_n_u32(key0));
    x2 = veorq_u32(veorq_u32(high0, x3), vdupq_n_u32(key1));
    x1 = low1;
    x3 = low0;
  }
  // The four words of each counter, one counter after another.
  void store(uint32_t* words) const { vst4q_u32(words, {{x0, x1, x2, x3}}); }

 private:
  static void multiply(uint32x4_t a, uint32_t b, uint32x4_t& low, uint32x4_t& high) {
    const uint32x4_t first = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(a), b));
    const uint32x4_t last = vreinterpretq_u32_u64(vmull_n_u32(vget_high_u32(a), b));
    low = vuzp1q_u32(first, last);
    high = vuzp2q_u32(first, last);
  }
};

inline void philox_words(Floats, const PhiloxRoundKeys& keys, uint32_t first, uint32_t word1, uint32_t word2,
                         uint32_t word3, uint32_t* words) {
  constexpr uint32_t kLanes[] = {0, 1, 2, 3};
  const uint32x4_t lane = vld1q_u32(kLanes);
  for (uint32_t done = 0; done < kPhiloxWords / 4; done += 8) {
    PhiloxFour low{vaddq_u32(lane, vdupq_n_u32(first + done)), vdupq_n_u32(word1), vdupq_n_u32(word2),
                   vdupq_n_u32(word3)};
    PhiloxFour high = low;
    high.x0 = vaddq_u32(low.x0, vdupq_n_u32(4));
    for (int i = 0; i < 10; ++i) {
      low.round(keys.first[i], keys.second[i]);
      high.round(keys.first[i], keys.second[i]);
    }
    low.store(words + 4 * done);
    high.store(words + 4 * done + 16);
  }
}

}  // namespace espalier::kernels::neon
