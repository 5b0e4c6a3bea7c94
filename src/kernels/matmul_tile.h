// What the bf16 units do with one finished 32 x 32 tile of C. Internal linkage: each unit compiles its own copy for its
// own instruction set. Included by matmul_avx512bf16.cpp and matmul_amx.cpp only.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/matmul_bf16.h"

namespace espalier::kernels {
namespace {

inline __mmask16 first_lanes(int64_t count) {
  return count >= 16  ? static_cast<__mmask16>(0xFFFF)
         : count <= 0 ? static_cast<__mmask16>(0)
                      : static_cast<__mmask16>((1u << count) - 1);
}

// Adds to, or overwrites, the part of a partial tile that exists.
inline void write_partial(const float* tile, int64_t rows, int64_t columns, bool add, float* c, int64_t c_stride) {
  const __mmask16 low = first_lanes(columns), high = first_lanes(columns - 16);
  for (int64_t row = 0; row < rows; ++row) {
    float* out = c + row * c_stride;
    __m512 left = _mm512_load_ps(tile + row * kPanel), right = _mm512_load_ps(tile + row * kPanel + 16);
    if (add) {
      left = _mm512_add_ps(left, _mm512_maskz_loadu_ps(low, out));
      right = _mm512_add_ps(right, _mm512_maskz_loadu_ps(high, out + 16));
    }
    _mm512_mask_storeu_ps(out, low, left);
    if (high != 0) _mm512_mask_storeu_ps(out + 16, high, right);
  }
}

// Overwrites it, past the caches where whole lines are written: the caller ends with a store fence.
inline void write_past_caches(const float* tile, int64_t rows, int64_t columns, float* c, int64_t c_stride) {
  const bool whole_lines = columns == kPanel && reinterpret_cast<uintptr_t>(c) % 64 == 0 && c_stride % 16 == 0;
  if (!whole_lines) return write_partial(tile, rows, columns, /*add=*/false, c, c_stride);
  for (int64_t row = 0; row < rows; ++row) {
    _mm512_stream_ps(c + row * c_stride, _mm512_load_ps(tile + row * kPanel));
    _mm512_stream_ps(c + row * c_stride + 16, _mm512_load_ps(tile + row * kPanel + 16));
  }
}

inline __m512 widen(__m256i values) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16));
}

// y = round(tile + bias), to nearest even. As VDPBF16PS and the tile product do, the conversion takes denormal numbers
// for zero.
inline void write_bf16(const float* tile, int64_t rows, int64_t columns, const uint16_t* bias, uint16_t* y,
                       int64_t y_stride) {
  const __mmask32 lanes =
      static_cast<__mmask32>(first_lanes(columns)) | (static_cast<__mmask32>(first_lanes(columns - 16)) << 16);
  __m512 bias_left = _mm512_setzero_ps(), bias_right = _mm512_setzero_ps();
  if (bias != nullptr) {
    const __m512i values = _mm512_maskz_loadu_epi16(lanes, bias);
    bias_left = widen(_mm512_castsi512_si256(values));
    bias_right = widen(_mm512_extracti64x4_epi64(values, 1));
  }
  for (int64_t row = 0; row < rows; ++row) {
    const __m512 left = _mm512_add_ps(_mm512_load_ps(tile + row * kPanel), bias_left);
    const __m512 right = _mm512_add_ps(_mm512_load_ps(tile + row * kPanel + 16), bias_right);
    const __m512i rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(right, left));
    _mm512_mask_storeu_epi16(y + row * y_stride, lanes, rounded);
  }
}

// y = round(by_product * tile + by_addend * values); `values` are those of the tile's first row and column.
inline void write_sum_bf16(const float* tile, int64_t rows, int64_t columns, const Addend& plus, uint16_t* y,
                           int64_t y_stride) {
  const __mmask32 lanes =
      static_cast<__mmask32>(first_lanes(columns)) | (static_cast<__mmask32>(first_lanes(columns - 16)) << 16);
  const __m512 by_product = _mm512_set1_ps(plus.by_product), by_addend = _mm512_set1_ps(plus.by_addend);
  for (int64_t row = 0; row < rows; ++row) {
    const __m512i values = _mm512_maskz_loadu_epi16(lanes, plus.values + row * plus.stride);
    const __m512 left = _mm512_mul_ps(by_addend, widen(_mm512_castsi512_si256(values)));
    const __m512 right = _mm512_mul_ps(by_addend, widen(_mm512_extracti64x4_epi64(values, 1)));
    const __m512 left_sum = _mm512_fmadd_ps(by_product, _mm512_load_ps(tile + row * kPanel), left);
    const __m512 right_sum = _mm512_fmadd_ps(by_product, _mm512_load_ps(tile + row * kPanel + 16), right);
    const __m512i rounded = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(right_sum, left_sum));
    _mm512_mask_storeu_epi16(y + row * y_stride, lanes, rounded);
  }
}

}  // namespace
}  // namespace espalier::kernels
