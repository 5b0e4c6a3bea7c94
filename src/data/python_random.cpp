#include "data/python_random.h"

#include <array>
#include <bit>
#include <cmath>
#include <set>

#include "base/error.h"

namespace espalier::data {
namespace {

constexpr size_t kStateWords = 624;

// The state of the Mersenne Twister that its authors' init_by_array makes of a key: what CPython seeds with, where the
// standard library's own seeding is another.
class KeySequence {
 public:
  using result_type = uint32_t;  // NOLINT(readability-identifier-naming): the name that the standard asks for

  explicit KeySequence(uint64_t seed) {
    key_.push_back(static_cast<uint32_t>(seed));
    if (seed >> 32 != 0) key_.push_back(static_cast<uint32_t>(seed >> 32));
  }

  template <class Iterator>
  void generate(Iterator begin, Iterator) {
    std::array<uint32_t, kStateWords> state;
    state[0] = 19650218;
    for (uint32_t i = 1; i < kStateWords; ++i) state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
    size_t i = 1;
    const auto step = [&](uint32_t factor) { return state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * factor); };
    const auto advance = [&] {
      if (++i < kStateWords) return;
      state[0] = state[kStateWords - 1];
      i = 1;
    };
    for (size_t k = 0; k < kStateWords; ++k) {
      const size_t j = k % key_.size();
      state[i] = step(1664525u) + key_[j] + static_cast<uint32_t>(j);
      advance();
    }
    for (size_t k = 0; k < kStateWords - 1; ++k) {
      state[i] = step(1566083941u) - static_cast<uint32_t>(i);
      advance();
    }
    state[0] = 0x80000000u;
    for (const uint32_t word : state) *begin++ = word;
  }

 private:
  std::vector<uint32_t> key_;
};

std::mt19937 seeded(uint64_t seed) {
  KeySequence sequence(seed);
  return std::mt19937(sequence);
}

}  // namespace

PythonRandom::PythonRandom(uint64_t seed) : engine_(seeded(seed)) {}

double PythonRandom::uniform() {
  const uint32_t high = engine_() >> 5, low = engine_() >> 6;
  return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0);
}

uint64_t PythonRandom::below(uint64_t end) {
  ESPALIER_CHECK(end >= 1 && end < (uint64_t{1} << 32), end);
  const int num_bits = std::bit_width(end);
  for (;;) {
    const uint32_t drawn = engine_() >> (32 - num_bits);
    if (drawn < end) return drawn;
  }
}

// CPython draws from a shrinking list where that is smaller than a set of what was taken.
std::vector<size_t> PythonRandom::sample(size_t size, size_t count) {
  ESPALIER_CHECK(count <= size, count, " of ", size);
  double largest_list = 21;
  if (count > 5) largest_list += std::pow(4.0, std::ceil(std::log(static_cast<double>(count) * 3) / std::log(4.0)));
  std::vector<size_t> drawn;
  if (static_cast<double>(size) <= largest_list) {
    std::vector<size_t> pool(size);
    for (size_t i = 0; i < size; ++i) pool[i] = i;
    for (size_t i = 0; i < count; ++i) {
      const size_t place = below(size - i);
      drawn.push_back(pool[place]);
      pool[place] = pool[size - i - 1];
    }
    return drawn;
  }
  std::set<size_t> taken;
  while (drawn.size() < count) {
    const size_t place = below(size);
    if (taken.insert(place).second) drawn.push_back(place);
  }
  return drawn;
}

}  // namespace espalier::data
