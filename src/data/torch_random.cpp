#include "data/torch_random.h"

#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace espalier::data {

std::vector<int64_t> torch_randperm(int64_t size, uint64_t seed) {
  std::mt19937 words(static_cast<uint32_t>(seed));
  std::vector<int64_t> result(static_cast<size_t>(size));
  std::iota(result.begin(), result.end(), 0);
  // torch takes one word for a draw while its remainder is nearly even, and two (the high one first) beyond; the two
  // ways also walk in opposite senses.
  constexpr int64_t kOneWordBelow = std::numeric_limits<uint32_t>::max() / 20;
  if (size < kOneWordBelow) {
    for (int64_t at = 0; at < size - 1; ++at) {
      const auto ahead = static_cast<int64_t>(words() % static_cast<uint64_t>(size - at));
      std::swap(result[static_cast<size_t>(at)], result[static_cast<size_t>(at + ahead)]);
    }
    return result;
  }
  for (int64_t at = 0; at < size; ++at) {
    const uint64_t high = words();
    const uint64_t word = high << 32 | words();
    std::swap(result[static_cast<size_t>(at)], result[static_cast<size_t>(word % static_cast<uint64_t>(at + 1))]);
  }
  return result;
}

}  // namespace espalier::data
