#include "data/internal/numpy_words.h"

#include "base/cpu_isa.h"
#include "base/error.h"
#include "data/internal/numpy_words_loops.h"

namespace espalier::data::internal {

NumpyWords::NumpyWords(uint32_t seed) {
  state[0] = seed;
  for (uint32_t at = 1; at < kSize; ++at) state[at] = 1812433253u * (state[at - 1] ^ (state[at - 1] >> 30)) + at;
}

namespace generic {

struct OneByOne {
  static constexpr size_t kGroup = 1;
};

void refill(NumpyWords& words) { next_block(words); }

void draw_partners(NumpyWords& words, uint32_t maximum, size_t count, uint32_t* partners) {
  draw_with<OneByOne>(words, maximum, count, partners);
}

}  // namespace generic

void NumpyWords::refill() {
#ifdef __x86_64__
  if (cpu_isa() >= CpuIsa::kAvx512) return avx512::refill(*this);
  if (cpu_isa() >= CpuIsa::kAvx2) return avx2::refill(*this);
#endif
  generic::refill(*this);
}

void draw_partners(NumpyWords& words, uint32_t maximum, size_t count, uint32_t* partners) {
  ESPALIER_CHECK(count <= maximum, count, " ", maximum);
#ifdef __x86_64__
  if (cpu_isa() >= CpuIsa::kAvx512) return avx512::draw_partners(words, maximum, count, partners);
  if (cpu_isa() >= CpuIsa::kAvx2) return avx2::draw_partners(words, maximum, count, partners);
#endif
  generic::draw_partners(words, maximum, count, partners);
}

}  // namespace espalier::data::internal
