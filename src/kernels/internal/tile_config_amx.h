// How AMX divides its memory: eight tiles of 16 rows of 64 bytes, which is as large as they can be. Internal linkage,
// as only units for AMX include it.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace espalier::kernels::amx {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// The compiler's tile instructions say nothing of the memory that they read and write: what was stored before is to be
// there, and what they store is to be read, only after this.
inline void order_memory() { asm volatile("" ::: "memory"); }

inline void load_config(const TileConfig& config) {
  order_memory();
  _tile_loadconfig(&config);
}

// Tiles 0 to 3, in which all units here have their sums.
inline void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

}  // namespace
}  // namespace espalier::kernels::amx
