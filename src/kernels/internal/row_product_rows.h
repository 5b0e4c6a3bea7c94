// Products of rows in fp32, in vectors V, of weights of storage type T. The weights of kWidePanel outputs are turned,
// kDepth inputs at a time, into a panel that stays in the first-level cache, where a vector has 16 outputs. Each
// element is summed input by input, kDepth of them from zero, and those sums one after another. So its bits depend on
// its row and its weights alone, and are the same on every instruction set.
#pragma once

#include <type_traits>

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/vector_loops.h"
#include "kernels/internal/wide_panels.h"

namespace espalier::kernels {

// One part of the depth of all products of a block: totals = x times panel + addend.
struct PartOfDepth {
  const float* panel;  // [depth][kWidePanel]
  int64_t begin, depth;
  const float* addend;  // nullptr: none
  int64_t addend_stride;
  float* totals;  // [tokens][kWidePanel]
};

// Of kRows tokens from `token` on.
template <class V, int kRows>
inline void multiply_rows(const WideRowProduct& args, const PartOfDepth& part, int64_t token) {
  constexpr int kVectors = kRows <= 2 ? 2 : V::kPanelVectors;
  static_assert(kWidePanel == 2 * V::kWidth);
  const int64_t inputs = args.product.inputs;
  const float* const x = args.x + token * inputs + part.begin;
  for (int64_t column = 0; column < kWidePanel; column += kVectors * V::kWidth) {
    V sum[kRows][kVectors];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 2
      for (int i = 0; i < kVectors; ++i) sum[row][i] = V::all(0);
    for (int64_t at = 0; at < part.depth; ++at) {
      V right[kVectors];
#pragma GCC unroll 2
      for (int i = 0; i < kVectors; ++i) right[i] = V::load(part.panel + at * kWidePanel + column + i * V::kWidth);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        const V left = V::all(x[row * inputs + at]);
#pragma GCC unroll 2
        for (int i = 0; i < kVectors; ++i) sum[row][i] = fma(left, right[i], sum[row][i]);
      }
    }
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 2
      for (int i = 0; i < kVectors; ++i) {
        const int64_t place = column + i * V::kWidth;
        V value = sum[row][i];
        if (part.addend != nullptr) value = value + V::load(part.addend + (token + row) * part.addend_stride + place);
        value.store(part.totals + (token + row) * kWidePanel + place);
      }
  }
}

// All tokens, kRows of them: each 16 inputs are multiplied as soon as they are turned, and memory is never idle.
template <class V, class T, int kRows>
inline void multiply_while_turning(const WideRowProduct& args, PanelSource source, const PartOfDepth& part) {
  const int64_t inputs = args.product.inputs;
  V sum[kRows][2];
#pragma GCC unroll 8
  for (auto& of_row : sum) of_row[0] = of_row[1] = V::all(0);
  for (int64_t at = 0; at < part.depth; at += V::kWidth) {
    source.depth = part.depth - at < V::kWidth ? part.depth - at : V::kWidth;
    pack_across<V, T>(source, args.scratch);
    source.values = static_cast<const T*>(source.values) + V::kWidth;
    const float* const x = args.x + part.begin + at;
    for (int64_t i = 0; i < source.depth; ++i) {
      const V low = V::load(args.scratch + i * kWidePanel), high = V::load(args.scratch + i * kWidePanel + V::kWidth);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        const V left = V::all(x[row * inputs + i]);
        sum[row][0] = fma(left, low, sum[row][0]);
        sum[row][1] = fma(left, high, sum[row][1]);
      }
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      V value = sum[row][i];
      if (part.addend != nullptr) value = value + V::load(part.addend + row * part.addend_stride + i * V::kWidth);
      value.store(part.totals + row * kWidePanel + i * V::kWidth);
    }
}

// body(tokens, a constant), of at most kMost.
template <int kMost, class Body>
inline void with_tokens(int64_t tokens, const Body& body) {
  if constexpr (kMost > 1)
    if (tokens < kMost) return with_tokens<kMost - 1>(tokens, body);
  body(std::integral_constant<int, kMost>{});
}

template <class V>
inline void multiply_few(const WideRowProduct& args, const PartOfDepth& part) {
  constexpr int kRows = V::kPanelRows >= 12 ? 8 : 4;  // as many as the registers hold the sums of
  const int64_t tokens = args.product.tokens;
  int64_t token = 0;
  const auto multiply = [&](auto rows) {
    for (; token + rows.value <= tokens; token += rows.value) multiply_rows<V, rows.value>(args, part, token);
  };
  multiply(std::integral_constant<int, kRows>{});
  multiply(std::integral_constant<int, 4>{});
  multiply(std::integral_constant<int, 2>{});
  multiply(std::integral_constant<int, 1>{});
}

template <class V>
inline void multiply_many(const WideRowProduct& args, const PartOfDepth& part) {
  const int64_t tokens = args.product.tokens;
  for (int64_t token = 0; token < tokens; token += kWidePanel)
    multiply_panels<V>({.a = args.x + token * args.product.inputs + part.begin * kWidePanel,
                        .b = part.panel,
                        .depth = part.depth,
                        .rows = tokens - token < kWidePanel ? tokens - token : kWidePanel,
                        .columns = kWidePanel,
                        .addend = part.addend == nullptr ? nullptr : part.addend + token * part.addend_stride,
                        .addend_stride = part.addend_stride,
                        .c = part.totals + token * kWidePanel,
                        .c_stride = kWidePanel});
}

template <class V, class T>
void row_product(const WideRowProduct& args, int64_t block) {
  const RowProduct& product = args.product;
  const int64_t output = block * kWidePanel, left = product.outputs - output, inputs = product.inputs;
  const int64_t count = left < kWidePanel ? left : kWidePanel;
  const T* const weight = static_cast<const T*>(product.weight) + output * inputs;
  float* const panel = args.scratch;
  float* const totals = panel + WideRowProduct::kDepth * kWidePanel;
  constexpr int kFew = V::kPanelRows >= 12 ? 8 : 2;  // as many as the registers hold the sums of
  const bool few = product.tokens <= kFew, many = product.tokens >= WideRowProduct::kMinPanelTokens;
  float bias[kWidePanel] = {};
  if (product.bias != nullptr)
    for_each_vector<V>(count, [&](int64_t i, auto lanes) {
      lanes.store(bias + i, lanes.load(static_cast<const T*>(product.bias) + output + i));
    });
  for (int64_t begin = 0; begin < inputs; begin += WideRowProduct::kDepth) {
    const int64_t depth = inputs - begin < WideRowProduct::kDepth ? inputs - begin : WideRowProduct::kDepth;
    // What is read next: the same rows further on, or the next ones from their beginning.
    const int64_t ahead = begin + depth == inputs ? kWidePanel * inputs - begin : depth;
    const PanelSource source{
        .values = weight + begin, .stride = inputs, .count = count, .depth = depth, .fetch_ahead = ahead};
    const PartOfDepth part{.panel = panel,
                           .begin = begin,
                           .depth = depth,
                           .addend = begin > 0                 ? totals
                                     : product.bias != nullptr ? bias
                                                               : nullptr,
                           .addend_stride = begin > 0 ? kWidePanel : 0,
                           .totals = totals};
    if (few) {
      if (product.tokens > 0)
        with_tokens<kFew>(product.tokens, [&](auto tokens) {
          multiply_while_turning<V, T, decltype(tokens)::value>(args, source, part);
        });
      continue;
    }
    pack_across<V, T>(source, panel);
    if (many)
      multiply_many<V>(args, part);
    else
      multiply_few<V>(args, part);
  }
  for (int64_t token = 0; token < product.tokens; ++token)
    for_each_vector<V>(count, [&](int64_t i, auto lanes) {
      const V value = lanes.load(totals + token * kWidePanel + i);
      const int64_t place = token * product.outputs + output + i;
      if (product.fp32_result)
        lanes.store(static_cast<float*>(product.y) + place, value);
      else
        lanes.store(static_cast<T*>(product.y) + place, value);
    });
}

}  // namespace espalier::kernels
