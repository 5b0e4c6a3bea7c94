// Attention's tile operations with NEON, elements fp32.
#include <arm_neon.h>

#include "kernels/internal/attention_fp32_elements.h"

namespace espalier::kernels {
namespace {

struct NeonFloat {
  using Float = float32x4_t;
  using Int = uint32x4_t;
  using Mask = uint32x4_t;  // all bits of a lane
  static constexpr int kLanes = 4, kBlockRows = 4;

  static Float zero() { return vdupq_n_f32(0); }
  static Float set(float x) { return vdupq_n_f32(x); }
  static Float load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, Float x) { vst1q_f32(p, x); }
  static Float add(Float a, Float b) { return vaddq_f32(a, b); }
  static Float sub(Float a, Float b) { return vsubq_f32(a, b); }
  static Float mul(Float a, Float b) { return vmulq_f32(a, b); }
  static Float fma(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
  static Float max(Float a, Float b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }  // b where one is not a number
  static float sum(Float x) {
    const float32x2_t two = vadd_f32(vget_low_f32(x), vget_high_f32(x));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
  static bool all_equal(Float a, Float b) { return vminvq_u32(vceqq_f32(a, b)) != 0; }
  static Float round(Float x) { return vrndnq_f32(x); }
  // x 2^n where m, else 0; -126 <= n <= 127: 2^n from its exponent bits.
  static Float scale_by_power(Mask m, Float x, Float n) {
    const Int exponent = vreinterpretq_u32_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)));
    const Float scaled = vmulq_f32(x, vreinterpretq_f32_u32(vshlq_n_u32(exponent, 23)));
    return vreinterpretq_f32_u32(vandq_u32(m, vreinterpretq_u32_f32(scaled)));
  }
  static Mask not_less(Float a, Float b) { return vmvnq_u32(vcltq_f32(a, b)); }  // true for a NaN

  static Int int_set(uint32_t x) { return vdupq_n_u32(x); }
  static Int int_load(const void* p) { return vld1q_u32(static_cast<const uint32_t*>(p)); }
  static Int lane_numbers() {
    constexpr uint32_t kNumbers[] = {0, 1, 2, 3};
    return vld1q_u32(kNumbers);
  }
  static Int int_add(Int a, Int b) { return vaddq_u32(a, b); }
  // Of 64-bit lanes: the product of the low halves, the high half moved down, the low halves of both woven together.
  static Int multiply_low_halves(Int a, Int b) {
    return vreinterpretq_u32_u64(vmull_u32(vmovn_u64(vreinterpretq_u64_u32(a)), vmovn_u64(vreinterpretq_u64_u32(b))));
  }
  static Int high_half(Int x) { return vreinterpretq_u32_u64(vshrq_n_u64(vreinterpretq_u64_u32(x), 32)); }
  static Int join_low_halves(Int even, Int odd) { return vtrn1q_u32(even, odd); }
  static Int xor3(Int a, Int b, Int c) { return veorq_u32(veorq_u32(a, b), c); }

  static Mask between(Int x, Int first, Int last) {
    const int32x4_t number = vreinterpretq_s32_u32(x);
    return vandq_u32(vcleq_s32(vreinterpretq_s32_u32(first), number), vcleq_s32(number, vreinterpretq_s32_u32(last)));
  }
  static Mask not_below(Int a, Int b) { return vcgeq_u32(a, b); }
  static Float select(Mask m, Float x, Float otherwise) { return vbslq_f32(m, x, otherwise); }

  static Float load_bfloat16(const uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
  static Float load_half(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static void store_half(uint16_t* p, Float x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
  // To nearest even; not-a-number stays one.
  static void store_bfloat16(uint16_t* p, Float x) {
    const Int bits = vreinterpretq_u32_f32(x);
    const Int odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const Int rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF)));
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, vdupq_n_u32(0x7FC00000)), 16));
  }

  // A block of 4 x 4 words of 32 bits: to[column][row] = from[row][column].
  static void transpose_block(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
    const uint32x4_t a = vld1q_u32(from), b = vld1q_u32(from + from_stride), c = vld1q_u32(from + 2 * from_stride),
                     d = vld1q_u32(from + 3 * from_stride);
    const uint64x2_t ab_even = vreinterpretq_u64_u32(vtrn1q_u32(a, b)),
                     ab_odd = vreinterpretq_u64_u32(vtrn2q_u32(a, b));
    const uint64x2_t cd_even = vreinterpretq_u64_u32(vtrn1q_u32(c, d)),
                     cd_odd = vreinterpretq_u64_u32(vtrn2q_u32(c, d));
    vst1q_u32(to, vreinterpretq_u32_u64(vtrn1q_u64(ab_even, cd_even)));
    vst1q_u32(to + to_stride, vreinterpretq_u32_u64(vtrn1q_u64(ab_odd, cd_odd)));
    vst1q_u32(to + 2 * to_stride, vreinterpretq_u32_u64(vtrn2q_u64(ab_even, cd_even)));
    vst1q_u32(to + 3 * to_stride, vreinterpretq_u32_u64(vtrn2q_u64(ab_odd, cd_odd)));
  }

  static Float dot(Float sum, Int a, Int b) {
    return vfmaq_f32(sum, vreinterpretq_f32_u32(a), vreinterpretq_f32_u32(b));
  }
};

}  // namespace

const TileOps kNeonTileOps = tile_loops::make_table<Fp32Elements<NeonFloat>>();

}  // namespace espalier::kernels
