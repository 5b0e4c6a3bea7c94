// Attention's tile operations with AVX512-BF16: products of bf16 pairs (VDPBF16PS), sums in fp32.
#include "kernels/internal/attention_bf16_elements.h"
#include "kernels/internal/attention_tile_loops.h"

namespace espalier::kernels {
namespace {

struct Avx512Bf16 : Bf16Elements {
  static void begin() {}
  static void end() {}
  static void multiply(float* c, const void* a, const void* b, int64_t m, int64_t n, int64_t k, bool accumulate) {
    tile_loops::multiply<Avx512Bf16>(c, a, b, m, n, k, accumulate);
  }
};

}  // namespace

const TileOps kAvx512Bf16TileOps = tile_loops::make_table<Avx512Bf16>();

}  // namespace espalier::kernels
