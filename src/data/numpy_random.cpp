#include "data/numpy_random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

namespace espalier::data {

uint64_t NumpyRandom::interval(uint64_t maximum) {
  if (maximum == 0) return 0;
  const uint64_t mask = ~uint64_t{0} >> std::countl_zero(maximum);
  uint64_t value;
  do {
    value = engine_();
    if (maximum > 0xffffffffu) value = value << 32 | engine_();  // the high word comes first
    value &= mask;
  } while (value > maximum);
  return value;
}

double NumpyRandom::uniform() {
  const auto high = static_cast<double>(engine_() >> 5), low = static_cast<double>(engine_() >> 6);
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

size_t NumpyRandom::choice(std::span<const double> cumulated) {
  const double value = uniform();
  return static_cast<size_t>(std::upper_bound(cumulated.begin(), cumulated.end(), value) - cumulated.begin());
}

// numpy 1.17 and later; before, the first logarithm was that of 1 - u.
int64_t NumpyRandom::geometric(double probability) {
  return static_cast<int64_t>(std::ceil(std::log1p(-uniform()) / std::log(1.0 - probability)));
}

// Fisher-Yates from the last value down. Where a position swaps to does not depend on the values, so the partners of
// a block are drawn ahead and their memory is on its way when the swaps need it: 4 times faster once the values
// outgrow the cache.
template <class Value>
void NumpyRandom::shuffle(std::span<Value> values, Progress* progress) {
  constexpr size_t kBlock = 64;
  std::array<size_t, kBlock> partners;
  size_t left = values.size();
  while (left > 1) {
    const size_t count = std::min(kBlock, left - 1);
    for (size_t entry = 0; entry < count; ++entry) {
      partners[entry] = interval(left - 1 - entry);
      __builtin_prefetch(&values[partners[entry]], /*write=*/1);
    }
    for (size_t entry = 0; entry < count; ++entry) std::swap(values[left - 1 - entry], values[partners[entry]]);
    left -= count;
    if (progress != nullptr) progress->advance(static_cast<int64_t>(count));
  }
  if (progress != nullptr && !values.empty()) progress->advance(1);
}

template void NumpyRandom::shuffle(std::span<int32_t>, Progress*);
template void NumpyRandom::shuffle(std::span<uint32_t>, Progress*);
template void NumpyRandom::shuffle(std::span<int64_t>, Progress*);

}  // namespace espalier::data
