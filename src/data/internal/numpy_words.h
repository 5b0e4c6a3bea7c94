// The words of numpy's MT19937, block by block, and the draws of a shuffle from them: as fast as the instruction set in
// force (base/cpu_isa.h) makes them, the same on each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier::data::internal {

struct NumpyWords {
  static constexpr size_t kSize = 624;

  explicit NumpyWords(uint32_t seed);  // init_genrand(seed)

  uint32_t take() {
    if (next == kSize) refill();
    return words[next++];
  }

  void refill();  // the next kSize words; those that are left are lost

  uint32_t state[kSize];
  uint32_t words[kSize];
  size_t next = kSize;
};

// `count` numbers, the first from 0 to `maximum`, each next one's maximum smaller by one: numpy's masked rejection.
// count <= maximum.
void draw_partners(NumpyWords& words, uint32_t maximum, size_t count, uint32_t* partners);

// The two of each instruction set.
namespace generic {
void refill(NumpyWords& words);
void draw_partners(NumpyWords& words, uint32_t maximum, size_t count, uint32_t* partners);
}  // namespace generic
namespace avx2 {
void refill(NumpyWords& words);
void draw_partners(NumpyWords& words, uint32_t maximum, size_t count, uint32_t* partners);
}  // namespace avx2
namespace avx512 {
void refill(NumpyWords& words);
void draw_partners(NumpyWords& words, uint32_t maximum, size_t count, uint32_t* partners);
}  // namespace avx512

}  // namespace espalier::data::internal
