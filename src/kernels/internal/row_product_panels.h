// Products of many rows in vectors V of storage type T, with the bits of row_product_rows.h: there an output has a
// running sum in each lane of a vector, and sum(V) adds those up; here each lane's sums of 32 tokens and 32 outputs are
// a product of two panels, and the tiles are added up in the order of sum(V). So weights are loaded once for several
// tokens, and no sum goes across a vector.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/row_product_rows.h"
#include "kernels/internal/wide_panels.h"

namespace espalier::kernels {

// A panel of tokens and one of outputs.
struct LaneProduct {
  const float* x;
  const float* weights;
  int64_t depth, tokens;  // of a lane
};

// Tiles of as equal heights as can be, down to the last token of a panel or beyond the last of the product.
template <class V, int kFirst = 0>
inline void lane_tiles(const float* x, const float* weights, const LaneProduct& lanes, const float* addend,
                       float* sums) {
  constexpr int kPanel = PanelRowProduct::kPanel;
  if constexpr (kFirst < kPanel) {
    if (kFirst >= lanes.tokens) return;
    constexpr int kLeft = kPanel - kFirst, kTiles = (kLeft + V::kPanelRows - 1) / V::kPanelRows;
    constexpr int kRows = (kLeft + kTiles - 1) / kTiles, kPlace = kFirst * kPanel;
    panel_tile<V, kRows, kPanel, kPanel>(x + kFirst, weights, lanes.depth,
                                         addend == nullptr ? nullptr : addend + kPlace, kPanel, sums + kPlace, kPanel);
    lane_tiles<V, kFirst + kRows>(x, weights, lanes, addend, sums);
  }
}

// sums = the products of that lane + addend; the rows of whole tiles.
template <class V>
inline void multiply_lane(const LaneProduct& lanes, int64_t lane, const float* addend, float* sums) {
  const int64_t place = lane * lanes.depth * PanelRowProduct::kPanel;
  for (int64_t column = 0; column < PanelRowProduct::kPanel; column += kPanelColumns<V>)
    lane_tiles<V>(lanes.x + place, lanes.weights + place + column, lanes, addend == nullptr ? nullptr : addend + column,
                  sums + column);
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
  for (int64_t i = 0; i < lanes.tokens * PanelRowProduct::kPanel; i += V::kWidth)
    (V::load(tiles + i) + V::load(others + i)).store(tiles + i);
}

template <class V, class T>
void panel_row_product(const PanelRowProduct& args, int64_t block) {
  static_assert(V::kWidth == PanelRowProduct::kLanes);
  constexpr int64_t kPanel = PanelRowProduct::kPanel;
  const RowProduct& product = args.product;
  const int64_t output = block * kPanel, left = product.outputs - output;
  const int64_t count = left < kPanel ? left : kPanel;
  const int64_t padded_inputs = PanelRowProduct::padded_inputs(product.inputs);
  float* const weights = args.scratch;
  float* const tiles = weights + padded_inputs * kPanel;
  pack_lanes<V, T>({.values = static_cast<const T*>(product.weight) + output * product.inputs,
                    .stride = product.inputs,
                    .count = count,
                    .depth = product.inputs},
                   weights);
  for (int64_t token = 0; token < product.tokens; token += kPanel) {
    const int64_t tokens = product.tokens - token < kPanel ? product.tokens - token : kPanel;
    const LaneProduct lanes{.x = args.x + token * padded_inputs,
                            .weights = weights,
                            .depth = padded_inputs / PanelRowProduct::kLanes,
                            .tokens = tokens};
    sum_lanes<V>(lanes, 0, 1, tiles);
    for (int64_t row = 0; row < tokens; ++row)
      store_products<V, T>(product, tiles + row * kPanel, token + row, output, count);
  }
}

}  // namespace espalier::kernels
