// How often the host waits for the device in the steps of runs.
#pragma once

#include <cstdint>

namespace espalier::cuda_test {

// While it exists, counts, one at a time, what waits: item(), and copies to the CPU. What the trainer calls
// "forward and backward" and "optimizer" is counted apart; nothing outside of them is.
class HostWaits {
 public:
  struct Counts {
    int64_t in_passes = 0, in_optimizer = 0;
    int64_t copies_without_wait = 0;  // in forward and backward passes
  };

  HostWaits();
  ~HostWaits();
  HostWaits(const HostWaits&) = delete;
  HostWaits& operator=(const HostWaits&) = delete;

  Counts counts() const;

 private:
  uint64_t handle_;
};

}  // namespace espalier::cuda_test
