// The device whose ops these tests compare with the CPU's: a GPU (gpu_device.cpp), or one that this machine's CPU
// stands in for, with memory of its own (host_backend.cpp), by running the GPU's kernels thread by thread
// (host_device.cpp). One body of tests, two programs.
#pragma once

#include <c10/core/Device.h>

#include "tests/support/long_version.h"

namespace espalier::cuda_test {

at::Device device_under_test();

// A GPU takes all cases of a test in a moment. A CPU that stands in for one takes those that differ in kind, and all
// with ESPALIER_TEST_ALL.
inline bool takes_all_cases() { return device_under_test().is_cuda() || test::long_version(); }

// Why attention cannot be cuDNN's there; nullptr: it can, or something stands in for it (sdpa_on_host.h).
const char* why_no_cudnn_attention();

// While there, ops of tensors on that device run the kernels under test.
class UseDevice {
 public:
  UseDevice();
  ~UseDevice();  // NOLINT(performance-trivially-destructible): one program of the two has something to undo
  UseDevice(const UseDevice&) = delete;
  UseDevice& operator=(const UseDevice&) = delete;
};

}  // namespace espalier::cuda_test
