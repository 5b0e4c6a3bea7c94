// Quotients by a number that a launch has but the compiler does not: a multiplication where the GPU would take some
// twenty instructions, or for 64 bits a hundred.
//
// Plain header.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "spec/anywhere.h"

namespace espalier::cuda {

// Of numbers from 0 to 2^31 - 1 (Granlund and Montgomery 1994, figure 4.1).
class Divisor {
 public:
  explicit Divisor(int64_t divisor) : divisor_(static_cast<uint32_t>(divisor)) {
    ESPALIER_CHECK(divisor > 0 && divisor <= INT32_MAX, "a division by ", divisor);
    while ((uint64_t{1} << shift_) < divisor_) ++shift_;
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << shift_) - divisor_) * (uint64_t{1} << 32) / divisor_ + 1);
  }

  struct Parts {
    uint32_t quotient, rest;
  };
  ESPALIER_ANYWHERE Parts divide(int64_t number) const {
    const auto n = static_cast<uint32_t>(number);
    const auto high = static_cast<uint32_t>((uint64_t{n} * multiplier_) >> 32);
    const uint32_t quotient = (high + n) >> shift_;
    return {quotient, n - quotient * divisor_};
  }

 private:
  uint32_t divisor_, multiplier_ = 0, shift_ = 0;
};

}  // namespace espalier::cuda
