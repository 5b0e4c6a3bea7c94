#include "models/probe.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace espalier::models {

// A multiplicative congruential sequence (Park & Miller 1988).
at::Tensor probe_ids(int64_t max_positions, int64_t vocab_size) {
  constexpr int64_t kRows = 2, kLongest = 37;
  at::Tensor ids = at::empty({kRows, std::min(kLongest, max_positions)}, at::kLong);
  uint64_t state = 1;
  for (int64_t i = 0; i < ids.numel(); ++i) {
    state = state * 48271 % 2147483647;
    ids.data_ptr<int64_t>()[i] = static_cast<int64_t>(state % static_cast<uint64_t>(vocab_size));
  }
  return ids;
}

}  // namespace espalier::models
