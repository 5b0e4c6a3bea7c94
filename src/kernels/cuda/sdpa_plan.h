// One pass of attention as a graph of cuDNN, with the plan that cuDNN makes of it. Plain header: the frontend of cuDNN,
// 30,000 lines of headers, is in the source alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/sdpa.h"

struct cudnnContext;  // cudnnHandle_t is a pointer to it

namespace espalier::cuda {

// What a plan is made for: a GPU that is there, or one that is only described, for tests.
struct SdpaDevice {
  cudnnContext* handle = nullptr;
  int64_t capability = 90;  // 10 * major + minor
  // Without a handle: as cuDNN's CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION has it.
  std::string properties;
};

class SdpaPlan {
 public:
  // `like` and `gradients` (nullptr: the forward pass) give all but the addresses. A UserError has cuDNN's reason.
  SdpaPlan(const Sdpa& like, const SdpaGradients* gradients, const SdpaDevice& device);
  ~SdpaPlan();
  SdpaPlan(const SdpaPlan&) = delete;
  SdpaPlan& operator=(const SdpaPlan&) = delete;

  int64_t workspace_bytes() const;
  // On the stream of `handle`, one of the plan's device.
  void run(cudnnContext* handle, const Sdpa& sdpa, const SdpaGradients* gradients, void* workspace) const;

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
};

}  // namespace espalier::cuda
