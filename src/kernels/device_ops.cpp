#include "kernels/device_ops.h"

#include <array>

#include "base/error.h"

namespace espalier::kernels {
namespace {
std::array<const DeviceOps*, static_cast<size_t>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)> ops_of_type{};
}

const DeviceOps* device_ops(const at::Tensor& tensor) { return device_ops(tensor.device()); }

const DeviceOps* device_ops(at::Device device) {
  const DeviceOps* const ops = ops_of_type[static_cast<size_t>(device.type())];
  ESPALIER_CHECK(ops != nullptr || device.is_cpu(), "there are no kernels for tensors on ", device);
  return ops;
}

void set_device_ops(c10::DeviceType type, const DeviceOps* ops) { ops_of_type[static_cast<size_t>(type)] = ops; }

}  // namespace espalier::kernels
