// Products of rows of bf16 on AMX tiles (Intel Sapphire Rapids and later).
//
// Weights are read as they lie, 16 outputs by 32 inputs a tile, since packing them would cost as much as a product with
// a few rows; what is packed are the inputs, pair by pair. So a tile of sums is [outputs][tokens], and is transposed
// when it is written. A sum takes 32 inputs after 32 in the order of the instruction, whatever else is computed beside
// it.
#include <immintrin.h>

#include <cstdint>

#include "kernels/internal/bf16_avx512.h"
#include "kernels/internal/row_kernels.h"
#include "kernels/internal/tile_config_amx.h"
#include "kernels/internal/transpose_avx512.h"

namespace espalier::kernels::amx {
namespace {

using avx512::narrow;
using avx512::transpose_words;
using avx512::widen;

constexpr int64_t kTileElements = kTokenPanel * kTileInputs;  // of a tile of bf16
constexpr int64_t kTileSums = 16 * 16;
constexpr int64_t kLineElements = 32;
// Weights of so many inputs stay in the first-level cache (48 KiB) while panels of tokens pass by; more come in blocks,
// each for kGroup pairs of panels, whose sums wait in the second level.
constexpr int64_t kWholeInputs = 768, kInputsBlock = 384, kGroup = 16;

int64_t inputs_block(int64_t inputs) {
  if (inputs <= kWholeInputs) return inputs;
  const int64_t blocks = (inputs + kInputsBlock - 1) / kInputsBlock, units = inputs / kTileInputs;
  return (units + blocks - 1) / blocks * kTileInputs;
}

// The weights of the outputs that come next, which lie in one piece: fetched into the second-level cache evenly over
// the steps of this block, since the processor follows too few of sixteen rows at once.
class NextWeights {
 public:
  NextWeights(const RowProduct& product, int64_t output, int64_t steps)
      : from_(static_cast<const uint16_t*>(product.weight) + output * product.inputs) {
    const int64_t left = product.outputs - output, outputs = left < kTileOutputs ? left : kTileOutputs;
    if (outputs > 0) lines_ = outputs * product.inputs / kLineElements;
    each_ = (lines_ + steps - 1) / steps;
  }
  void fetch_some() {
    for (int64_t i = 0; i < each_ && lines_ > 0; ++i, --lines_, from_ += kLineElements)
      _mm_prefetch(reinterpret_cast<const char*>(from_), _MM_HINT_T1);
  }

 private:
  const uint16_t* from_;
  int64_t lines_ = 0, each_;
};

// 32 outputs and a part of their inputs. Rows are `stride` bytes apart.
struct Weights {
  const uint16_t* upper;
  const uint16_t* lower;
  int64_t stride, steps;
};

// Tiles: 0 to 3 sums (upper and lower outputs of the first panel, then of the second), 4 and 5 weights, 6 and 7 inputs.
// A panel alone stays in the first-level cache, and the weights pass by; else it is the other way round.
void multiply_one(const Weights& weights, const uint16_t* x, NextWeights& next) {
  for (int64_t step = 0; step < weights.steps; ++step) {
    _tile_loadd(6, x + step * kTileElements, 64);
    _tile_stream_loadd(4, weights.upper + step * kTileInputs, weights.stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_stream_loadd(5, weights.lower + step * kTileInputs, weights.stride);
    _tile_dpbf16ps(1, 5, 6);
    next.fetch_some();
  }
}

void multiply_two(const Weights& weights, const uint16_t* x, const uint16_t* other, NextWeights& next) {
  for (int64_t step = 0; step < weights.steps; ++step) {
    _tile_stream_loadd(6, x + step * kTileElements, 64);
    _tile_loadd(4, weights.upper + step * kTileInputs, weights.stride);
    _tile_stream_loadd(7, other + step * kTileElements, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, weights.lower + step * kTileInputs, weights.stride);
    _tile_dpbf16ps(2, 4, 7);
    _tile_dpbf16ps(1, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    next.fetch_some();
  }
}

constexpr int64_t kSumBytes = 64;

void load_sums(const float* sums, bool two) {
  _tile_loadd(0, sums, kSumBytes);
  _tile_loadd(1, sums + kTileSums, kSumBytes);
  if (!two) return;
  _tile_loadd(2, sums + 2 * kTileSums, kSumBytes);
  _tile_loadd(3, sums + 3 * kTileSums, kSumBytes);
}

void store_sums(float* sums, bool two) {
  _tile_stored(0, sums, kSumBytes);
  _tile_stored(1, sums + kTileSums, kSumBytes);
  if (!two) return;
  _tile_stored(2, sums + 2 * kTileSums, kSumBytes);
  _tile_stored(3, sums + 3 * kTileSums, kSumBytes);
}

// One tile of sums, from an output and a token on.
void write(const RowProduct& product, const float* sums, int64_t output, int64_t token) {
  if (output >= product.outputs) return;
  const int64_t outputs = product.outputs - output, tokens = product.tokens - token;
  const __mmask16 lanes = outputs < 16 ? static_cast<__mmask16>((1U << outputs) - 1) : static_cast<__mmask16>(0xFFFF);
  const __m512 bias = product.bias == nullptr
                          ? _mm512_setzero_ps()
                          : widen(_mm256_maskz_loadu_epi16(lanes, static_cast<const uint16_t*>(product.bias) + output));
  __m512i rows[16];
  for (int64_t i = 0; i < 16; ++i) rows[i] = _mm512_load_si512(sums + i * 16);
  transpose_words(rows);
  for (int64_t i = 0; i < 16 && i < tokens; ++i) {
    __m512 value = _mm512_castsi512_ps(rows[i]);
    if (product.bias != nullptr) value = _mm512_add_ps(value, bias);
    const int64_t place = (token + i) * product.outputs + output;
    if (product.fp32_result)
      _mm512_mask_storeu_ps(static_cast<float*>(product.y) + place, lanes, value);
    else
      _mm256_mask_storeu_epi16(static_cast<uint16_t*>(product.y) + place, lanes, narrow(value));
  }
}

// The weights of a block that does not fill its tiles, with zeros beyond the last output and the last input.
void pad(const RowProduct& product, int64_t output, int64_t outputs, uint16_t* padded) {
  const int64_t width = padded_inputs(product);
  for (int64_t row = 0; row < kTileOutputs; ++row) {
    uint16_t* const to = padded + row * width;
    const int64_t count = row < outputs ? product.inputs : 0;
    __builtin_memcpy(to,
                     static_cast<const uint16_t*>(product.weight) + (output + (count == 0 ? 0 : row)) * product.inputs,
                     static_cast<size_t>(count) * 2);
    __builtin_memset(to + count, 0, static_cast<size_t>(width - count) * 2);
  }
}

// All tokens with the outputs of a block; `weight`: its rows, `stride` elements apart.
void multiply_block(const RowProduct& product, const uint16_t* packed, const uint16_t* weight, int64_t stride,
                    int64_t output) {
  const int64_t inputs = padded_inputs(product), panels = token_panels(product), block = inputs_block(inputs);
  const int64_t panel_elements = kTokenPanel * inputs, pairs = (panels + 1) / 2;
  NextWeights next(product, output + kTileOutputs,
                   inputs / kTileInputs * (pairs < 4 ? pairs : 4));  // ready while the last pairs are multiplied
  alignas(64) float sums[kGroup][4 * kTileSums];
  order_memory();
  for (int64_t first = 0; first < pairs; first += kGroup) {
    const int64_t last = first + kGroup < pairs ? first + kGroup : pairs;
    for (int64_t begin = 0; begin < inputs; begin += block) {
      const int64_t end = begin + block < inputs ? begin + block : inputs;
      const Weights weights{weight + begin, weight + 16 * stride + begin, stride * 2, (end - begin) / kTileInputs};
      for (int64_t pair = first; pair < last; ++pair) {
        const bool two = 2 * pair + 1 < panels;
        const uint16_t* const x = packed + 2 * pair * panel_elements + begin * kTokenPanel;
        float* const here = sums[pair - first];
        begin == 0 ? clear_sums() : load_sums(here, two);
        if (two)
          multiply_two(weights, x, x + panel_elements, next);
        else
          multiply_one(weights, x, next);
        store_sums(here, two);
        order_memory();
        if (end < inputs) continue;
        for (int64_t tile = 0; tile < (two ? 4 : 2); ++tile)
          write(product, here + tile * kTileSums, output + tile % 2 * 16, (2 * pair + tile / 2) * kTokenPanel);
      }
    }
  }
}

}  // namespace

void pack_tokens(const RowProduct& product, int64_t panel, uint16_t* packed) {
  const int64_t inputs = padded_inputs(product), token = panel * kTokenPanel;
  const auto* const x = static_cast<const uint16_t*>(product.x) + token * product.inputs;
  uint16_t* to = packed + panel * kTokenPanel * inputs;
  for (int64_t first = 0; first < inputs; first += kTileInputs, to += kTileElements) {
    const int64_t left = product.inputs - first;
    const __mmask32 lanes = left < kTileInputs ? (__mmask32{1} << left) - 1 : ~__mmask32{0};
    __m512i rows[16];
    for (int64_t i = 0; i < 16; ++i)
      rows[i] = token + i < product.tokens ? _mm512_maskz_loadu_epi16(lanes, x + i * product.inputs + first)
                                           : _mm512_setzero_si512();
    transpose_words(rows);
    for (int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * 2 * kTokenPanel, rows[i]);
  }
}

void row_product_bf16(const RowProduct& product, const uint16_t* packed, int64_t begin, int64_t end, uint16_t* padded) {
  static const TileConfig config;
  load_config(config);
  NextWeights(product, begin * kTileOutputs, /*steps=*/1).fetch_some();
  for (int64_t block = begin; block < end; ++block) {
    const int64_t output = block * kTileOutputs, outputs = product.outputs - output;
    const auto* const weight = static_cast<const uint16_t*>(product.weight) + output * product.inputs;
    if (outputs >= kTileOutputs && product.inputs % kTileInputs == 0) {
      multiply_block(product, packed, weight, product.inputs, output);
    } else {
      pad(product, output, outputs < kTileOutputs ? outputs : kTileOutputs, padded);
      multiply_block(product, packed, padded, padded_inputs(product), output);
    }
  }
  _tile_release();
}

}  // namespace espalier::kernels::amx
