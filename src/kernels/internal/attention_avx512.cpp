// Attention's tile operations with AVX-512, elements fp32.
#include "kernels/internal/attention_avx512_math.h"
#include "kernels/internal/attention_fp32_elements.h"

namespace espalier::kernels {
namespace {

struct Avx512Float : Avx512Math {
  static constexpr int kBlockRows = 8;

  static Float dot(Float sum, Int a, Int b) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
  }
};

}  // namespace

const TileOps kAvx512TileOps = tile_loops::make_table<Fp32Elements<Avx512Float>>();

}  // namespace espalier::kernels
