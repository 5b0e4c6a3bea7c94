// bf16 products on BFDOT (Arm's FEAT_BF16: Neoverse V1 and later, Apple M2): each group of 4 rows by 16 columns of C
// stays in 16 registers while the depth runs.
#include <arm_neon.h>

#include <cstddef>

#include "kernels/matmul_bf16.h"

namespace espalier::kernels {
namespace neonbf16 {
namespace {

constexpr int kRows = 4, kVectors = 4, kHalf = 16;  // vectors of four columns make one half of a panel

// tile [first_row .. first_row + kRows, 16 columns of `half`] = those of A * B panel.
inline void multiply_rows(const PanelProduct& product, int64_t first_row, int64_t half, const uint16_t* b,
                          float* tile) {
  float32x4_t sum[kRows][kVectors];
  for (int row = 0; row < kRows; ++row)
    for (int vector = 0; vector < kVectors; ++vector) sum[row][vector] = vdupq_n_f32(0);
  const uint16_t* a = product.a + first_row * product.a_stride;
  b += half * (kBlockElements / 2);
  for (int64_t step = 0; step < product.depth / kDepthUnit; ++step, a += product.a_step, b += kBlockElements) {
    for (int64_t four = 0; four < kDepthUnit / 8; ++four) {  // pairs of depths
      bfloat16x8_t pairs[kRows];
      for (int row = 0; row < kRows; ++row)
        pairs[row] = vreinterpretq_bf16_u16(vld1q_u16(a + row * product.a_stride + 8 * four));
      const uint16_t* columns = b + four * 4 * 2 * kHalf;
      const auto add_pair = [&](auto multiply) {
        for (int vector = 0; vector < kVectors; ++vector) {
          const bfloat16x8_t right = vreinterpretq_bf16_u16(vld1q_u16(columns + 8 * vector));
          for (int row = 0; row < kRows; ++row) sum[row][vector] = multiply(sum[row][vector], right, pairs[row]);
        }
        columns += 2 * kHalf;
      };
      add_pair([](float32x4_t c, bfloat16x8_t y, bfloat16x8_t x) { return vbfdotq_laneq_f32(c, y, x, 0); });
      add_pair([](float32x4_t c, bfloat16x8_t y, bfloat16x8_t x) { return vbfdotq_laneq_f32(c, y, x, 1); });
      add_pair([](float32x4_t c, bfloat16x8_t y, bfloat16x8_t x) { return vbfdotq_laneq_f32(c, y, x, 2); });
      add_pair([](float32x4_t c, bfloat16x8_t y, bfloat16x8_t x) { return vbfdotq_laneq_f32(c, y, x, 3); });
    }
  }
  for (int row = 0; row < kRows; ++row)
    for (int vector = 0; vector < kVectors; ++vector)
      vst1q_f32(tile + (first_row + row) * kPanel + half * kHalf + 4 * vector, sum[row][vector]);
}

// Calls finish(tile, first column, columns) for each 32 x 32 tile of the product.
template <class Finish>
inline void for_each_tile(const PanelProduct& product, Finish finish) {
  alignas(64) float tile[kPanel * kPanel];
  for (int64_t column = 0; column < product.columns; column += kPanel) {
    const int64_t columns = product.columns - column < kPanel ? product.columns - column : kPanel;
    const uint16_t* b = product.b + column * product.depth;
    for (int64_t row = 0; row < product.rows; row += kRows)
      for (int64_t half = 0; half * kHalf < columns; ++half) multiply_rows(product, row, half, b, tile);
    finish(tile, column, columns);
  }
}

float widened(uint16_t value) {
  const uint32_t bits = uint32_t{value} << 16;
  float result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
}

// To nearest even; what is no number becomes the one NaN.
uint16_t rounded(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return value == value ? static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) : uint16_t{0x7FC0};
}

template <class Value>  // value(row, column, product)
inline void write(const PanelProduct& product, uint16_t* y, int64_t y_stride, Value value) {
  for_each_tile(product, [&](const float* tile, int64_t first, int64_t columns) {
    for (int64_t row = 0; row < product.rows; ++row)
      for (int64_t i = 0; i < columns; ++i)
        y[row * y_stride + first + i] = rounded(value(row, first + i, tile[row * kPanel + i]));
  });
}

void store(const PanelProduct& product, float* c, int64_t c_stride) {
  for_each_tile(product, [&](const float* tile, int64_t first, int64_t columns) {
    for (int64_t row = 0; row < product.rows; ++row)
      __builtin_memcpy(c + row * c_stride + first, tile + row * kPanel, static_cast<size_t>(columns) * sizeof(float));
  });
}

void add(const PanelProduct& product, float* c, int64_t c_stride) {
  for_each_tile(product, [&](const float* tile, int64_t first, int64_t columns) {
    for (int64_t row = 0; row < product.rows; ++row)
      for (int64_t i = 0; i < columns; ++i) c[row * c_stride + first + i] += tile[row * kPanel + i];
  });
}

void store_bf16(const PanelProduct& product, const uint16_t* bias, uint16_t* y, int64_t y_stride) {
  write(product, y, y_stride, [bias](int64_t, int64_t column, float value) {
    return bias == nullptr ? value : value + widened(bias[column]);
  });
}

void store_sum_bf16(const PanelProduct& product, const Addend& plus, uint16_t* y, int64_t y_stride) {
  write(product, y, y_stride, [&plus](int64_t row, int64_t column, float value) {
    return __builtin_fmaf(plus.by_product, value, plus.by_addend * widened(plus.values[row * plus.stride + column]));
  });
}

}  // namespace
}  // namespace neonbf16

const Bf16Kernels kNeonBf16Kernels = {.has_tiles = false,
                                      .store = neonbf16::store,
                                      .add = neonbf16::add,
                                      .store_bf16 = neonbf16::store_bf16,
                                      .store_sum_bf16 = neonbf16::store_sum_bf16,
                                      .pack_transposed = pack_a_transposed,
                                      .store_packed = neonbf16::store,
                                      .add_packed = neonbf16::add};

}  // namespace espalier::kernels
