#include "kernels/cuda/sdpa.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cudnn/Handle.h>

#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/sdpa_plan.h"
#include "kernels/cuda/stream.h"

namespace espalier::cuda {
namespace {

// All that a plan depends on.
using PlanKey = std::vector<int64_t>;

PlanKey key_of(const Sdpa& sdpa, const SdpaGradients* gradients) {
  PlanKey key = {current_device().index(),
                 static_cast<int64_t>(sdpa.type),
                 sdpa.batch,
                 sdpa.query_heads,
                 sdpa.key_heads,
                 sdpa.num_queries,
                 sdpa.num_keys,
                 sdpa.head_size,
                 sdpa.causal ? 1 : 0,
                 std::bit_cast<int32_t>(sdpa.scale),
                 sdpa.log_sum_exp != nullptr ? 1 : 0};
  const auto add = [&](const SdpaOperand& operand) {
    key.insert(key.end(), {operand.batch_stride, operand.head_stride, operand.position_stride});
  };
  for (const SdpaOperand* operand : {&sdpa.query, &sdpa.key, &sdpa.value, &sdpa.result}) add(*operand);
  if (gradients == nullptr) return key;
  for (const SdpaOperand* operand : {&gradients->result, &gradients->query, &gradients->key, &gradients->value})
    add(*operand);
  return key;
}

const SdpaPlan& plan_for(const Sdpa& sdpa, const SdpaGradients* gradients, cudnnHandle_t handle) {
  struct Plans {
    std::mutex mutex;  // backward passes run on a thread of their own
    std::map<PlanKey, std::unique_ptr<SdpaPlan>> of;
  };
  static auto* const plans = new Plans;  // stay: at the end of the process the device may be gone first
  const std::lock_guard lock(plans->mutex);
  std::unique_ptr<SdpaPlan>& plan = plans->of[key_of(sdpa, gradients)];
  if (plan == nullptr) {
    const cudaDeviceProp& properties = *at::cuda::getCurrentDeviceProperties();
    plan = std::make_unique<SdpaPlan>(
        sdpa, gradients, SdpaDevice{.handle = handle, .capability = 10 * properties.major + properties.minor});
  }
  return *plan;
}

void run(const Sdpa& sdpa, const SdpaGradients* gradients) {
  const cudnnHandle_t handle = at::native::getCudnnHandle();  // of this thread and device, on the current stream
  const SdpaPlan& plan = plan_for(sdpa, gradients, handle);
  const at::Tensor workspace =
      at::empty({plan.workspace_bytes()}, at::TensorOptions().dtype(at::kByte).device(current_device()));
  plan.run(handle, sdpa, gradients, workspace.mutable_data_ptr());
}

}  // namespace

const char* why_no_sdpa() { return nullptr; }

void sdpa_forward(const Sdpa& sdpa) { run(sdpa, nullptr); }

void sdpa_backward(const Sdpa& sdpa, const SdpaGradients& gradients) { run(sdpa, &gradients); }

}  // namespace espalier::cuda
