// What tile operations with fp32 elements have in common on every instruction set: an element policy
// (attention_tile_loops.h) over its vectors, which have dot() and kBlockRows themselves.
#pragma once

#include "kernels/internal/attention_tile_loops.h"

namespace espalier::kernels {

template <class Vectors>
struct Fp32Elements : Vectors {
  using Float = typename Vectors::Float;
  using Element = float;
  static constexpr int kGroup = 1;

  static void begin() {}
  static void end() {}

  static Float load_elements(const float* p) { return Vectors::load(p); }
  static void store_elements(float* p, Float x) { Vectors::store(p, x); }
  static void store_two_rows(void* tile, int64_t key, int64_t lane, Float x, Float y) {
    float* const row = static_cast<float*>(tile) + key * kTile + lane;
    Vectors::store(row, x);
    Vectors::store(row + kTile, y);
  }
  static void store_interleaved(void* tile, int64_t key, int64_t lane, Float x, Float y) {
    store_two_rows(tile, key, lane, x, y);
  }
  static void multiply(float* c, const void* a, const void* b, int64_t m, int64_t n, int64_t k, bool accumulate) {
    tile_loops::multiply<Fp32Elements>(c, a, b, m, n, k, accumulate);
  }
};

}  // namespace espalier::kernels
