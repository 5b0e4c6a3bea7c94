// What a run's records hold of the samples of each step (sample_hash): the sum modulo 2^64, over the samples, of XXH3
// of the sample's number in the run, its inputs and its last label, the first and last of which are int64.
#pragma once

#include <cstdint>
#include <span>

#include "base/hash.h"

namespace espalier::data {

// Feeds a sample to the hasher. Samples with more than ids (train::sample_hash) feed that after it.
inline void hash_sample(Hasher& hasher, int64_t number, std::span<const int64_t> inputs, int64_t last_label) {
  hasher.update(&number, sizeof number);
  hasher.update(inputs.data(), inputs.size_bytes());
  hasher.update(&last_label, sizeof last_label);
}

}  // namespace espalier::data
