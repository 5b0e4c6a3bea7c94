#include "tensor/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace espalier::tensor {

DeviceMemory device_memory(at::Device device) {
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto &allocated = stats.allocated_bytes[kAll], &reserved = stats.reserved_bytes[kAll];
  return {allocated.current, allocated.peak, reserved.current, reserved.peak};
}

}  // namespace espalier::tensor
