// Attention's tile operations for any machine: vectors of four floats in the compiler's own notation.
#include "kernels/internal/attention_fp32_elements.h"
#include "kernels/internal/half.h"

namespace espalier::kernels {
namespace {

struct Generic {
  typedef float Float __attribute__((vector_size(16)));
  typedef int32_t Int __attribute__((vector_size(16)));
  typedef uint32_t Words __attribute__((vector_size(16)));
  typedef uint64_t Long __attribute__((vector_size(16)));
  using Mask = Int;  // all bits of a lane
  static constexpr int kLanes = 4, kBlockRows = 4;

  static Float zero() { return Float{}; }
  static Float set(float x) { return Float{x, x, x, x}; }
  static Float load(const float* p) {
    Float x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
  }
  static void store(float* p, Float x) { __builtin_memcpy(p, &x, sizeof x); }
  static Float add(Float a, Float b) { return a + b; }
  static Float sub(Float a, Float b) { return a - b; }
  static Float mul(Float a, Float b) { return a * b; }
  static Float fma(Float a, Float b, Float c) { return a * b + c; }
  static Float max(Float a, Float b) { return select(a > b, a, b); }  // b where one is not a number
  static float sum(Float x) { return (x[0] + x[1]) + (x[2] + x[3]); }
  static bool all_equal(Float a, Float b) {
    const Int equal = a == b;
    return (equal[0] & equal[1] & equal[2] & equal[3]) != 0;
  }
  // To the nearest integer for |x| < 2^22: adding 1.5 2^23 leaves no bits for a fraction.
  static Float round(Float x) { return (x + set(0x1.8p23f)) - set(0x1.8p23f); }
  // x 2^n where m, else 0; -126 <= n <= 127: 2^n from its exponent bits.
  static Float scale_by_power(Mask m, Float x, Float n) {
    const Words exponent = (reinterpret_cast<Words>(__builtin_convertvector(n, Int)) + 127) << 23;
    return reinterpret_cast<Float>(m & reinterpret_cast<Int>(x * reinterpret_cast<Float>(exponent)));
  }
  static Mask not_less(Float a, Float b) { return ~(a < b); }  // true for a NaN

  static Int int_set(uint32_t x) { return reinterpret_cast<Int>(Words{x, x, x, x}); }
  static Int int_load(const void* p) {
    Int x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
  }
  static Int lane_numbers() { return Int{0, 1, 2, 3}; }
  static Int int_add(Int a, Int b) {
    return reinterpret_cast<Int>(reinterpret_cast<Words>(a) + reinterpret_cast<Words>(b));
  }
  // Of 64-bit lanes: the product of the low halves, the high half moved down, the low halves of both woven together.
  static Int multiply_low_halves(Int a, Int b) {
    const Long low = Long{} + 0xFFFFFFFF;
    return reinterpret_cast<Int>((reinterpret_cast<Long>(a) & low) * (reinterpret_cast<Long>(b) & low));
  }
  static Int high_half(Int x) { return reinterpret_cast<Int>(reinterpret_cast<Long>(x) >> 32); }
  static Int join_low_halves(Int even, Int odd) { return __builtin_shufflevector(even, odd, 0, 4, 2, 6); }
  static Int xor3(Int a, Int b, Int c) { return a ^ b ^ c; }

  static Mask between(Int x, Int first, Int last) { return (first <= x) & (x <= last); }
  static Mask not_below(Int a, Int b) { return reinterpret_cast<Words>(a) >= reinterpret_cast<Words>(b); }
  static Float select(Mask m, Float x, Float otherwise) {
    return reinterpret_cast<Float>((m & reinterpret_cast<Int>(x)) | (~m & reinterpret_cast<Int>(otherwise)));
  }

  static Float load_bfloat16(const uint16_t* p) {
    const Words bits = {p[0], p[1], p[2], p[3]};
    return reinterpret_cast<Float>(bits << 16);
  }
  // To nearest even; not-a-number stays one.
  static void store_bfloat16(uint16_t* p, Float x) {
    const Words bits = reinterpret_cast<Words>(x);
    const Words rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    for (int lane = 0; lane < kLanes; ++lane) {
      p[lane] = static_cast<uint16_t>(x[lane] == x[lane] ? rounded[lane] : 0x7FC0);
    }
  }
  static Float load_half(const uint16_t* p) {
    Half half[kLanes];
    __builtin_memcpy(half, p, sizeof half);
    return Float{float(half[0]), float(half[1]), float(half[2]), float(half[3])};
  }
  static void store_half(uint16_t* p, Float x) {
    const Half half[kLanes] = {Half(x[0]), Half(x[1]), Half(x[2]), Half(x[3])};
    __builtin_memcpy(p, half, sizeof half);
  }

  static void transpose_block(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
    for (int row = 0; row < kLanes; ++row) {
      for (int column = 0; column < kLanes; ++column) to[column * to_stride + row] = from[row * from_stride + column];
    }
  }

  static Float dot(Float sum, Int a, Int b) { return fma(reinterpret_cast<Float>(a), reinterpret_cast<Float>(b), sum); }
};

}  // namespace

const TileOps kGenericTileOps = tile_loops::make_table<Fp32Elements<Generic>>();

}  // namespace espalier::kernels
