#include <immintrin.h>

#include "kernels/softmax_rows.h"

namespace espalier::kernels {
namespace avx512 {
namespace {

inline __mmask16 lanes_left(int64_t count) {
  return count >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1u << count) - 1);
}

// exp(x) for x <= 0 or a little above: 2^n e^r with |r| <= ln 2 / 2, e^r by its Taylor polynomial of degree 7
// (truncation below 2^-27).
inline __m512 exponential(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);  // ln 2 in two parts: n times the first is exact
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.0f / 5040);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);  // underflows to zero by itself
}

// Bits of x rounded to bf16 (nearest even), in the upper half of each word. NaN is not expected here.
inline __m512i round_to_bf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7FFF));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_mov_epi32(_mm512_and_si512(up, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))), nan, bits);
}

template <LogitRounding kRounding>
inline __m512 load(const float* logits, __mmask16 lanes) {
  const __m512 x = _mm512_maskz_loadu_ps(lanes, logits);
  if constexpr (kRounding == LogitRounding::kBf16) return _mm512_castsi512_ps(round_to_bf16(x));
  if constexpr (kRounding == LogitRounding::kFp16) {
    return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  return x;
}

template <LogitRounding kRounding>
void accumulate_as(const LogitBlock& block, RowSums* sums) {
  __m512 maximum = _mm512_set1_ps(-__builtin_inff());
  for (int64_t i = 0; i < block.count; i += 16) {
    const __mmask16 lanes = lanes_left(block.count - i);
    maximum = _mm512_mask_max_ps(maximum, lanes, maximum, _mm512_maskz_loadu_ps(lanes, block.logits + i));
  }
  // Rounding is monotonic: the largest rounded logit is the rounded largest.
  const float block_largest = _mm512_reduce_max_ps(maximum);
  const float rounded = _mm512_cvtss_f32(load<kRounding>(&block_largest, 1));
  const float largest = rounded > sums->largest ? rounded : sums->largest;
  const __m512 shift = _mm512_set1_ps(largest);
  __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
  int64_t i = 0;
  for (; i + 32 <= block.count; i += 32) {
    even = _mm512_add_ps(even, exponential(_mm512_sub_ps(load<kRounding>(block.logits + i, 0xFFFF), shift)));
    odd = _mm512_add_ps(odd, exponential(_mm512_sub_ps(load<kRounding>(block.logits + i + 16, 0xFFFF), shift)));
  }
  for (; i < block.count; i += 16) {
    const __mmask16 lanes = lanes_left(block.count - i);
    even = _mm512_mask_add_ps(even, lanes, even,
                              exponential(_mm512_sub_ps(load<kRounding>(block.logits + i, lanes), shift)));
  }
  const double before = sums->sum == 0 ? 0 : sums->sum * __builtin_exp(static_cast<double>(sums->largest) - largest);
  sums->sum = before + static_cast<double>(_mm512_reduce_add_ps(_mm512_add_ps(even, odd)));
  sums->largest = largest;
  if (block.label >= 0 && block.label < block.count) {
    sums->label_logit = _mm512_cvtss_f32(load<kRounding>(block.logits + block.label, 1));
  }
}

// Calls write(index, lanes, gradient of 16 logits, without the label's -1).
template <LogitRounding kRounding, class Write>
inline void for_each_gradient(const LogitBlock& block, const RowGradient& row, Write write) {
  const __m512 shift = _mm512_set1_ps(row.log_sum_exp), scale = _mm512_set1_ps(row.scale);
  for (int64_t i = 0; i < block.count; i += 16) {
    const __mmask16 lanes = lanes_left(block.count - i);
    __m512 probability = exponential(_mm512_sub_ps(load<kRounding>(block.logits + i, lanes), shift));
    const int64_t label_lane = block.label - i;
    if (label_lane >= 0 && label_lane < 16) {
      const __mmask16 label = static_cast<__mmask16>(1u << label_lane);
      probability = _mm512_mask_sub_ps(probability, label, probability, _mm512_set1_ps(1.0f));
    }
    write(i, lanes, _mm512_mul_ps(probability, scale));
  }
}

template <LogitRounding kRounding>
void gradient_as(const LogitBlock& block, const RowGradient& row) {
  for_each_gradient<kRounding>(block, row, [&](int64_t i, __mmask16 lanes, __m512 value) {
    _mm512_mask_storeu_ps(block.logits + i, lanes, row.scale == 0 ? _mm512_setzero_ps() : value);
  });
}

template <LogitRounding kRounding>
void gradient_bf16_as(const LogitBlock& block, const RowGradient& row, uint16_t* out) {
  for_each_gradient<kRounding>(block, row, [&](int64_t i, __mmask16 lanes, __m512 value) {
    const __m256i rounded = _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_to_bf16(value), 16));
    _mm256_mask_storeu_epi16(out + i, lanes, row.scale == 0 ? _mm256_setzero_si256() : rounded);
  });
}

void accumulate(const LogitBlock& block, RowSums* sums) {
  if (block.rounding == LogitRounding::kBf16) return accumulate_as<LogitRounding::kBf16>(block, sums);
  if (block.rounding == LogitRounding::kFp16) return accumulate_as<LogitRounding::kFp16>(block, sums);
  accumulate_as<LogitRounding::kNone>(block, sums);
}

void gradient(const LogitBlock& block, const RowGradient& row) {
  if (block.rounding == LogitRounding::kBf16) return gradient_as<LogitRounding::kBf16>(block, row);
  if (block.rounding == LogitRounding::kFp16) return gradient_as<LogitRounding::kFp16>(block, row);
  gradient_as<LogitRounding::kNone>(block, row);
}

void gradient_bf16(const LogitBlock& block, const RowGradient& row, uint16_t* out) {
  if (block.rounding == LogitRounding::kBf16) return gradient_bf16_as<LogitRounding::kBf16>(block, row, out);
  if (block.rounding == LogitRounding::kFp16) return gradient_bf16_as<LogitRounding::kFp16>(block, row, out);
  gradient_bf16_as<LogitRounding::kNone>(block, row, out);
}

}  // namespace
}  // namespace avx512

const SoftmaxRowKernels kAvx512SoftmaxRows = {avx512::accumulate, avx512::gradient, avx512::gradient_bf16};

}  // namespace espalier::kernels
