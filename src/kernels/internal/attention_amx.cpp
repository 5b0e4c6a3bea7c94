// Attention's tile operations with AMX: products by tile registers of 16 x 32 bf16, the rest by AVX-512.
#include "kernels/internal/attention_bf16_elements.h"
#include "kernels/internal/attention_tile_loops.h"

namespace espalier::kernels {
namespace {

// Palette 1; all eight tiles of 16 rows of 64 bytes. Constant data: GCC 12's _tile_loadconfig tells the compiler of the
// first 8 bytes only, and stores into a local configuration are dropped.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig kConfig;

struct Amx : Bf16Elements {
  static void begin() { _tile_loadconfig(&kConfig); }
  static void end() { _tile_release(); }

  // Tiles 0 to 3 hold a block of 32 x 32 sums, 4 and 5 two tiles of a, 6 and 7 two tiles of b: four loads feed four
  // products.
  static void multiply(float* c, const void* a, const void* b, int64_t m, int64_t n, int64_t k, bool accumulate) {
    const auto* const left = static_cast<const uint16_t*>(a);
    const auto* const right = static_cast<const uint32_t*>(b);
    const int64_t c_stride = n * 4, a_stride = k * 2, b_stride = n * 4;  // bytes
    for (int64_t row = 0; row < m; row += 32) {
      for (int64_t column = 0; column < n; column += 32) {
        float* const upper = c + row * n + column;
        float* const lower = upper + 16 * n;
        if (accumulate) {
          _tile_loadd(0, upper, c_stride);
          _tile_loadd(1, upper + 16, c_stride);
          _tile_loadd(2, lower, c_stride);
          _tile_loadd(3, lower + 16, c_stride);
        } else {
          _tile_zero(0);
          _tile_zero(1);
          _tile_zero(2);
          _tile_zero(3);
        }
        for (int64_t step = 0; step < k; step += 32) {
          const uint16_t* const a_tile = left + row * k + step;
          const uint32_t* const b_tile = right + step / 2 * n + column;
          _tile_loadd(4, a_tile, a_stride);
          _tile_loadd(6, b_tile, b_stride);
          _tile_loadd(5, a_tile + 16 * k, a_stride);
          _tile_loadd(7, b_tile + 16, b_stride);
          _tile_dpbf16ps(0, 4, 6);
          _tile_dpbf16ps(1, 4, 7);
          _tile_dpbf16ps(2, 5, 6);
          _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, upper, c_stride);
        _tile_stored(1, upper + 16, c_stride);
        _tile_stored(2, lower, c_stride);
        _tile_stored(3, lower + 16, c_stride);
      }
    }
  }
};

}  // namespace

const TileOps kAmxTileOps = tile_loops::make_table<Amx>();

}  // namespace espalier::kernels
