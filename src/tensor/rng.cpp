#include "tensor/rng.h"

#include <cmath>
#include <cstring>
#include <string>

#include "base/hash.h"

namespace espalier::tensor {

PhiloxBlock philox4x32(PhiloxKey key, PhiloxBlock counter) {
  constexpr uint32_t kMultiply0 = 0xD2511F53u, kMultiply1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  auto& x = counter.word;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiply0} * x[0];
    const uint64_t product1 = uint64_t{kMultiply1} * x[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(product1 >> 32) ^ x[1] ^ key.word[0], static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ x[3] ^ key.word[1], static_cast<uint32_t>(product0)};
    std::memcpy(x, next, sizeof next);
    key.word[0] += kWeyl0;
    key.word[1] += kWeyl1;
  }
  return counter;
}

PhiloxKey philox_key(uint64_t seed, const char* site_name) {
  const uint64_t hash = hash64(std::string(site_name), seed);
  return {{static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)}};
}

void fill_normal(PhiloxKey key, double standard_deviation, int64_t first, int64_t count, float* values) {
  for (int64_t element = first; element < first + count;) {
    const uint64_t pair = static_cast<uint64_t>(element) / 2;
    const PhiloxBlock bits = philox4x32(key, {{static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32), 0, 0}});
    // 53-bit uniforms; the first in (0, 1] so that its logarithm is finite.
    const double u = (static_cast<double>((uint64_t{bits.word[0]} << 21) | (bits.word[1] >> 11)) + 1.0) * 0x1p-53;
    const double v = static_cast<double>((uint64_t{bits.word[2]} << 21) | (bits.word[3] >> 11)) * 0x1p-53;
    const double radius = standard_deviation * std::sqrt(-2.0 * std::log(u));
    const double angle = 2.0 * M_PI * v;
    if (element % 2 == 0) values[element++ - first] = static_cast<float>(radius * std::cos(angle));
    if (element < first + count && element % 2 == 1)
      values[element++ - first] = static_cast<float>(radius * std::sin(angle));
  }
}

}  // namespace espalier::tensor
