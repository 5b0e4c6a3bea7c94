#include "data/numpy_random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace espalier::data {
namespace {

// The largest of so many values has a number of 32 bits.
constexpr size_t kMostOfOneWord = size_t{1} << 32;

}  // namespace

uint64_t NumpyRandom::interval(uint64_t maximum) {
  if (maximum == 0) return 0;
  const uint64_t mask = ~uint64_t{0} >> std::countl_zero(maximum);
  uint64_t value;
  do {
    value = words_.take();
    if (maximum > 0xffffffffu) value = value << 32 | words_.take();  // the high word comes first
    value &= mask;
  } while (value > maximum);
  return value;
}

double NumpyRandom::uniform() {
  const auto high = static_cast<double>(words_.take() >> 5), low = static_cast<double>(words_.take() >> 6);
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

// Fisher-Yates from the last value down. Where a position swaps to does not depend on the values, so partners are drawn
// in blocks, and the memory of those some swaps ahead is on its way when the swaps need it.
template <class Value>
void NumpyRandom::shuffle(std::span<Value> values, Progress* progress) {
  constexpr size_t kBlock = 2048, kAhead = 64;
  uint32_t partners[kBlock + kAhead];
  size_t left = values.size(), drawn = 0;
  for (; left > kMostOfOneWord; --left) std::swap(values[left - 1], values[interval(left - 1)]);
  while (left > 1) {
    const size_t ready = std::min(kBlock + kAhead, left - 1), count = std::min(kBlock, left - 1);
    internal::draw_partners(words_, static_cast<uint32_t>(left - 1 - drawn), ready - drawn, partners + drawn);
    const size_t fetching = std::min(count, ready - std::min(ready, kAhead));
    Value* last = &values[left - 1];
    size_t entry = 0;
    for (; entry < fetching; ++entry, --last) {
      __builtin_prefetch(&values[partners[entry + kAhead]], /*write=*/1);
      std::swap(*last, values[partners[entry]]);
    }
    for (; entry < count; ++entry, --last) std::swap(*last, values[partners[entry]]);
    left -= count;
    drawn = ready - count;
    std::copy(partners + count, partners + ready, partners);
    if (progress != nullptr) progress->advance(static_cast<int64_t>(count));
  }
  if (progress != nullptr && !values.empty()) progress->advance(1);
}

void NumpyRandom::skip_shuffle(size_t num_values) {
  constexpr size_t kBlock = 2048;
  uint32_t partners[kBlock];
  size_t left = num_values;
  for (; left > kMostOfOneWord; --left) interval(left - 1);
  while (left > 1) {
    const size_t count = std::min(kBlock, left - 1);
    internal::draw_partners(words_, static_cast<uint32_t>(left - 1), count, partners);
    left -= count;
  }
}

template void NumpyRandom::shuffle(std::span<int32_t>, Progress*);
template void NumpyRandom::shuffle(std::span<uint32_t>, Progress*);
template void NumpyRandom::shuffle(std::span<int64_t>, Progress*);

}  // namespace espalier::data
