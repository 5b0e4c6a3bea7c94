// Products of many rows in vectors V of storage type T, with the bits of row_product_rows.h: there an output has a
// running sum in each lane of a vector, and sum(V) adds those up; here each lane's sums of 36 tokens and 32 outputs are
// products of panels, and the tiles are added up in the order of sum(V). So weights are loaded once for several
// tokens, and no sum goes across a vector.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/row_product_rows.h"
#include "kernels/internal/wide_panels.h"

namespace espalier::kernels {

// Panels of kWidth rows of the source, those of a lane one after another, lanes lane_size elements apart; up to
// padded_count rows, zeros after those of the source.
template <class V, class T, int64_t kWidth>
inline void pack_lanes(const PanelSource& source, int64_t padded_count, int64_t lane_size, float* packed) {
  constexpr int64_t kLanes = PanelRowProduct::kLanes, kStep = kWidth < V::kWidth ? kWidth : V::kWidth;
  static_assert(kWidth % kStep == 0 && V::kWidth - kStep <= kPackSlack);
  const int64_t depth = PanelRowProduct::lane_inputs(source.depth);
  for (int64_t first = 0; first < padded_count; first += kWidth, packed += kWidth * depth)
    for (int64_t i = 0; i < kWidth; i += kStep)
      transpose_rows<V, T>(rows_from<V, T>(source, first + i, kStep), kLanes * depth, [&](int64_t at, V value) {
        value.store(packed + at % kLanes * lane_size + at / kLanes * kWidth + i);
      });
}

template <class V, class T>
void pack_tokens(const PanelSource& source, float* packed) {
  pack_lanes<V, T, kPanelRows<V>>(source, source.count, PanelRowProduct::token_lane_size(source.depth), packed);
}

// Packed tokens and outputs.
struct LaneProduct {
  const float* x;
  const float* weights;
  int64_t inputs, tokens;
};

// sums = the products of that lane + addend; the rows of whole tiles.
template <class V>
inline void multiply_lane(const LaneProduct& lanes, int64_t lane, const float* addend, float* sums) {
  constexpr int64_t kTokens = PanelRowProduct::kTokens, kOutputs = PanelRowProduct::kOutputs;
  static_assert(kTokens % kPanelRows<V> == 0 && kOutputs % kPanelColumns<V> == 0);
  const int64_t depth = PanelRowProduct::lane_inputs(lanes.inputs);
  const float* const x = lanes.x + lane * PanelRowProduct::token_lane_size(lanes.inputs);
  const float* const weights = lanes.weights + lane * kOutputs * depth;
  for (int64_t column = 0; column < kOutputs; column += kPanelColumns<V>)
    for (int64_t row = 0; row < lanes.tokens; row += kPanelRows<V>) {
      const int64_t place = row * kOutputs + column;
      panel_tile<V>(x + row * depth, weights + column * depth, depth, addend == nullptr ? nullptr : addend + place,
                    kOutputs, sums + place, kOutputs);
    }
}

// The first of `tiles` becomes the sum over the lanes `lane`, lane + step, lane + 2 step, ...; those after it are
// scratch. sum(V) adds lane l + 8 to lane l, then l + 4, l + 2 and l + 1: so a sum is that over every other of its
// lanes plus that over the rest.
template <class V>
void sum_lanes(const LaneProduct& lanes, int64_t lane, int64_t step, float* tiles) {
  if (2 * step == PanelRowProduct::kLanes) {
    multiply_lane<V>(lanes, lane, nullptr, tiles);
    multiply_lane<V>(lanes, lane + step, tiles, tiles);
    return;
  }
  float* const others = tiles + PanelRowProduct::kTile;
  sum_lanes<V>(lanes, lane, 2 * step, tiles);
  sum_lanes<V>(lanes, lane + step, 2 * step, others);
  for (int64_t i = 0; i < lanes.tokens * PanelRowProduct::kOutputs; i += V::kWidth)
    (V::load(tiles + i) + V::load(others + i)).store(tiles + i);
}

template <class V, class T>
void panel_row_product(const PanelRowProduct& args, int64_t block) {
  static_assert(V::kWidth == PanelRowProduct::kLanes);
  constexpr int64_t kTokens = PanelRowProduct::kTokens, kOutputs = PanelRowProduct::kOutputs;
  const RowProduct& product = args.product;
  const int64_t output = block * kOutputs, left = product.outputs - output;
  const int64_t count = left < kOutputs ? left : kOutputs;
  const int64_t lane_size = kOutputs * PanelRowProduct::lane_inputs(product.inputs);
  float* const weights = args.scratch;
  float* const tiles = weights + PanelRowProduct::kLanes * lane_size;
  pack_lanes<V, T, kPanelColumns<V>>({.values = static_cast<const T*>(product.weight) + output * product.inputs,
                                      .stride = product.inputs,
                                      .count = count,
                                      .depth = product.inputs},
                                     kOutputs, lane_size, weights);
  const float* x = args.x;
  for (int64_t token = 0; token < product.tokens; token += kTokens, x += PanelRowProduct::tokens_size(product.inputs)) {
    const int64_t tokens = product.tokens - token < kTokens ? product.tokens - token : kTokens;
    sum_lanes<V>({.x = x, .weights = weights, .inputs = product.inputs, .tokens = tokens}, 0, 1, tiles);
    for (int64_t row = 0; row < tokens; ++row)
      store_products<V, T>(product, tiles + row * kOutputs, token + row, output, count);
  }
}

}  // namespace espalier::kernels
