// Random numbers that are the same on every machine.
#pragma once

#include <cstdint>

#include "base/mix64.h"

namespace espalier::control_plane {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix64(seed + kMix64Step)) {}
  uint64_t next() { return mix64(state_ += kMix64Step); }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double between(double low, double high) { return low + (high - low) * uniform(); }
  int64_t up_to(int64_t most) { return static_cast<int64_t>(next() % static_cast<uint64_t>(most + 1)); }  // 0 to most
  bool chance(double of) { return uniform() < of; }

 private:
  uint64_t state_;
};

}  // namespace espalier::control_plane
