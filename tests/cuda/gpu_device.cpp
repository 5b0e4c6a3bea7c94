// The GPU as the device under test. Without one the program says so and leaves with the exit code that ctest takes for
// "skipped".
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "cuda/cuda.h"
#include "tests/cuda/device_under_test.h"

namespace espalier::cuda_test {

at::Device device_under_test() { return {at::kCUDA, 0}; }

namespace {
cuda::Placement placement;
}
const char* why_no_cudnn_attention() { return placement.why_no_cudnn_attention; }

UseDevice::UseDevice() = default;
UseDevice::~UseDevice() = default;

}  // namespace espalier::cuda_test

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  ::testing::InitGoogleTest(&argc, argv);
  if (espalier::cuda::num_gpus() == 0) {
    std::printf("SKIPPED: the driver shows no GPU; nothing of libespalier_cuda.so was run\n");
    return kSkipped;
  }
  try {
    using espalier::cuda_test::placement;
    placement = espalier::cuda::place_process(espalier::config::Device::kCuda, 0);
    std::printf("on %s\n", placement.description.c_str());
  } catch (const espalier::UserError& error) {
    std::printf("%s\n", error.what());
    return EXIT_FAILURE;
  }
  return RUN_ALL_TESTS();
}
