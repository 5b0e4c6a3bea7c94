// What stands in for cuDNN's attention on this machine: plain loops over the operands that it was asked with.
#pragma once

#include <cstdint>

namespace espalier::cuda_test {

struct SdpaCalls {
  int64_t forward = 0, backward = 0;
  int64_t with_log_sum_exp = 0;  // of the forward ones
};
SdpaCalls sdpa_calls();  // of this process so far

}  // namespace espalier::cuda_test
