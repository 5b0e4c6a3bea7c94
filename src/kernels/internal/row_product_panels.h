// Products of many rows in vectors V of storage type T, with the bits of row_product_rows.h: there an output has a
// running sum in each lane of a vector, and sum(V) adds those up; here each lane's sums of 32 tokens and 32 outputs are
// a product of two panels, and the tiles are added up in the order of sum(V). So weights are loaded once for several
// tokens, and no sum goes across a vector.
#pragma once

#include "kernels/internal/row_kernels.h"
#include "kernels/internal/row_product_rows.h"
#include "kernels/internal/wide_panels.h"

namespace espalier::kernels {

// sums = the products of that lane + addend.
template <class V>
inline void multiply_lane(PanelProduct32 lanes, int64_t lane, const float* addend, float* sums) {
  lanes.a += lane * lanes.depth * kWidePanel;
  lanes.b += lane * lanes.depth * kWidePanel;
  lanes.addend = addend;
  lanes.c = sums;
  multiply_whole_panels<V>(lanes);
}

// The first of `tiles` becomes the sum over the lanes `lane`, lane + step, lane + 2 step, ...; those after it are
// scratch. sum(V) adds lane l + 8 to lane l, then l + 4, l + 2 and l + 1: so a sum is that over every other of its
// lanes plus that over the rest.
template <class V>
void sum_lanes(const PanelProduct32& lanes, int64_t lane, int64_t step, float* tiles) {
  if (2 * step == PanelRowProduct::kLanes) {
    multiply_lane<V>(lanes, lane, nullptr, tiles);
    multiply_lane<V>(lanes, lane + step, tiles, tiles);
    return;
  }
  float* const others = tiles + PanelRowProduct::kTile;
  sum_lanes<V>(lanes, lane, 2 * step, tiles);
  sum_lanes<V>(lanes, lane + step, 2 * step, others);
  for (int64_t i = 0; i < lanes.rows * kWidePanel; i += V::kWidth)
    (V::load(tiles + i) + V::load(others + i)).store(tiles + i);
}

template <class V, class T>
void panel_row_product(const PanelRowProduct& args, int64_t block) {
  static_assert(V::kWidth == PanelRowProduct::kLanes);
  const RowProduct& product = args.product;
  const int64_t output = block * kWidePanel, left = product.outputs - output;
  const int64_t count = left < kWidePanel ? left : kWidePanel;
  const int64_t padded_inputs = PanelRowProduct::padded_inputs(product.inputs);
  float* const weights = args.scratch;
  float* const tiles = weights + padded_inputs * kWidePanel;
  pack_lanes<V, T>({.values = static_cast<const T*>(product.weight) + output * product.inputs,
                    .stride = product.inputs,
                    .count = count,
                    .depth = product.inputs},
                   weights);
  for (int64_t token = 0; token < product.tokens; token += kWidePanel) {
    const int64_t tokens = product.tokens - token < kWidePanel ? product.tokens - token : kWidePanel;
    const PanelProduct32 lanes{.a = args.x + token * padded_inputs,
                               .b = weights,
                               .depth = padded_inputs / PanelRowProduct::kLanes,
                               .rows = tokens,
                               .columns = kWidePanel,
                               .addend = nullptr,
                               .addend_stride = kWidePanel,
                               .c = tiles,
                               .c_stride = kWidePanel};
    sum_lanes<V>(lanes, 0, 1, tiles);
    for (int64_t row = 0; row < tokens; ++row)
      store_products<V, T>(product, tiles + row * kWidePanel, token + row, output, count);
  }
}

}  // namespace espalier::kernels
