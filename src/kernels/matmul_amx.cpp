// bf16 products on AMX tiles (Intel Sapphire Rapids and later): 2 x 2 tiles of C, so that each tile of A and of B that
// is loaded is used twice.
#include <immintrin.h>

#include "kernels/matmul_bf16.h"
#include "kernels/matmul_tile.h"

namespace espalier::kernels {
namespace amx {
namespace {

// Eight tiles of 16 rows of 64 bytes: 0-3 C, 4-5 A, 6-7 B.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The tile of C that comes next, to fetch while this one is computed; c nullptr: none.
struct NextTile {
  const float* c = nullptr;
  int64_t c_stride = 0;
};

inline void fetch(const void* address) { _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0); }

// Tiles 0..3 += A panel * B panel. B passes by with the streaming hint, so that A stays in the first-level cache: 1.84
// instead of 1.33 TFLOP/s at depth 768.
inline void multiply(const PanelProduct& product, const uint16_t* b, const NextTile& next) {
  constexpr int64_t kRowBytes = 64;
  const int64_t a_bytes = product.a_stride * 2;
  const uint16_t* upper = product.a;
  const uint16_t* lower = product.a + 16 * product.a_stride;
  const int64_t steps = product.depth / kDepthUnit;
  for (int64_t step = 0; step < steps; ++step) {
    _tile_stream_loadd(6, b, kRowBytes);
    _tile_loadd(4, upper, a_bytes);
    _tile_stream_loadd(7, b + kBlockElements / 2, kRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, lower, a_bytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    b += kBlockElements;
    upper += product.a_step;
    lower += product.a_step;
    if (next.c != nullptr && step < kPanel / 2) {  // two rows of two lines a step
      const float* row = next.c + 2 * step * next.c_stride;
      fetch(row);
      fetch(row + 16);
      fetch(row + next.c_stride);
      fetch(row + next.c_stride + 16);
    }
  }
}

inline void clear_tiles() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

inline void store_tiles(float* c, int64_t c_stride) {
  const int64_t bytes = c_stride * 4;
  _tile_stored(0, c, bytes);
  _tile_stored(1, c + 16, bytes);
  _tile_stored(2, c + 16 * c_stride, bytes);
  _tile_stored(3, c + 16 * c_stride + 16, bytes);
}

inline void load_tiles(const float* c, int64_t c_stride) {
  const int64_t bytes = c_stride * 4;
  _tile_loadd(0, c, bytes);
  _tile_loadd(1, c + 16, bytes);
  _tile_loadd(2, c + 16 * c_stride, bytes);
  _tile_loadd(3, c + 16 * c_stride + 16, bytes);
}

// Calls finish(first column, columns) with the product of each panel in tiles 0..3; start(...) fills them before. `c`:
// the first tile of C, if the following ones are worth fetching.
template <class Start, class Finish>
inline void for_each_tile(const PanelProduct& product, NextTile c, Start start, Finish finish) {
  static const TileConfig config;
  _tile_loadconfig(&config);
  const int64_t num_parts = (product.columns + kPanel - 1) / kPanel;
  for (int64_t part = 0; part < num_parts; ++part) {
    const int64_t column = part * kPanel;
    const int64_t columns = product.columns - column < kPanel ? product.columns - column : kPanel;
    if (c.c != nullptr) c.c = part + 1 < num_parts ? c.c + kPanel : nullptr;
    start(column, columns);
    multiply(product, product.b + column * product.depth, c);
    finish(column, columns);
  }
  _tile_release();
}

void write(const PanelProduct& product, bool add, float* c, int64_t c_stride) {
  alignas(64) float tile[kPanel * kPanel];
  const auto whole = [&](int64_t columns) { return columns == kPanel && product.rows == kPanel; };
  for_each_tile(
      product, NextTile{add && product.rows == kPanel ? c : nullptr, c_stride},
      [&](int64_t column, int64_t columns) {
        if (add && whole(columns)) return load_tiles(c + column, c_stride);
        clear_tiles();
      },
      [&](int64_t column, int64_t columns) {
        if (whole(columns)) return store_tiles(c + column, c_stride);
        store_tiles(tile, kPanel);
        write_partial(tile, product.rows, columns, add, c + column, c_stride);
      });
}

void store(const PanelProduct& product, float* c, int64_t c_stride) { write(product, false, c, c_stride); }
void add(const PanelProduct& product, float* c, int64_t c_stride) { write(product, true, c, c_stride); }

void store_bf16(const PanelProduct& product, const uint16_t* bias, uint16_t* y, int64_t y_stride) {
  alignas(64) float tile[kPanel * kPanel];
  for_each_tile(
      product, NextTile{}, [](int64_t, int64_t) { clear_tiles(); },
      [&](int64_t column, int64_t columns) {
        store_tiles(tile, kPanel);
        write_bf16(tile, product.rows, columns, bias == nullptr ? nullptr : bias + column, y + column, y_stride);
      });
}

void store_sum_bf16(const PanelProduct& product, const Addend& plus, uint16_t* y, int64_t y_stride) {
  alignas(64) float tile[kPanel * kPanel];
  for_each_tile(
      product, NextTile{}, [](int64_t, int64_t) { clear_tiles(); },
      [&](int64_t column, int64_t columns) {
        store_tiles(tile, kPanel);
        const Addend here{plus.by_product, plus.by_addend, plus.values + column, plus.stride};
        write_sum_bf16(tile, product.rows, columns, here, y + column, y_stride);
      });
}

}  // namespace
}  // namespace amx

const Bf16Kernels kAmxKernels = {amx::store,          amx::add,          amx::store_bf16,
                                 amx::store_sum_bf16, pack_a_transposed, amx::add};

}  // namespace espalier::kernels
