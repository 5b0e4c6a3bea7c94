// Attention's tile operations with AVX-512, elements fp32.
#include "kernels/internal/attention_avx512_math.h"
#include "kernels/internal/attention_tile_loops.h"

namespace espalier::kernels {
namespace {

struct Avx512Float : Avx512Math {
  using Element = float;
  static constexpr int kGroup = 1, kBlockRows = 8;

  static void begin() {}
  static void end() {}
  static Float dot(Float sum, Int a, Int b) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
  }
  static Float load_elements(const float* p) { return load(p); }
  static void store_elements(float* p, Float x) { store(p, x); }
  static void store_two_rows(void* tile, int64_t key, int64_t lane, Float x, Float y) {
    float* const row = static_cast<float*>(tile) + key * kTile + lane;
    store(row, x);
    store(row + kTile, y);
  }
  static void store_interleaved(void* tile, int64_t key, int64_t lane, Float x, Float y) {
    store_two_rows(tile, key, lane, x, y);
  }
  static void multiply(float* c, const void* a, const void* b, int64_t m, int64_t n, int64_t k, bool accumulate) {
    tile_loops::multiply<Avx512Float>(c, a, b, m, n, k, accumulate);
  }
};

}  // namespace

const TileOps kAvx512TileOps = tile_loops::make_table<Avx512Float>();

}  // namespace espalier::kernels
