#include "tensor/rng.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/cpu_isa.h"
#include "base/hash.h"
#include "tensor/internal/normal_pairs.h"

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

namespace {

using FillPairs = void (*)(PhiloxKey key, double standard_deviation, uint64_t first_pair, float* values);

FillPairs pairs_of_machine() {
#ifdef __x86_64__
  if (cpu_isa() >= CpuIsa::kAvx512) return internal::avx512::normal_pairs;
  if (cpu_isa() >= CpuIsa::kAvx2) return internal::avx2::normal_pairs;
#endif
  return internal::generic::normal_pairs;
}

}  // namespace

void fill_normal(PhiloxKey key, double standard_deviation, int64_t first, int64_t count, float* values) {
  const FillPairs fill_pairs = pairs_of_machine();
  constexpr int64_t kBlock = 2 * internal::kPairsOfBlock;
  float part[kBlock];  // of which only some are wanted
  for (int64_t done = 0; done < count;) {
    const int64_t pair = (first + done) / 2, left = (first + done) % 2, taken = std::min(kBlock - left, count - done);
    const bool is_whole = taken == kBlock;
    fill_pairs(key, standard_deviation, static_cast<uint64_t>(pair), is_whole ? values + done : part);
    if (!is_whole) std::copy_n(part + left, taken, values + done);
    done += taken;
  }
}

}  // namespace espalier::tensor
