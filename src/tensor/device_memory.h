// What a device's allocator has given out, as it counts itself.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace espalier::tensor {

struct DeviceMemory {
  int64_t allocated = 0, peak_allocated = 0;  // by tensors
  int64_t reserved = 0, peak_reserved = 0;    // from the driver; what is not allocated is kept for tensors to come
};

// In bytes; peaks are those since the start of the process. Waits for nothing. Not of the CPU.
DeviceMemory device_memory(at::Device device);

}  // namespace espalier::tensor
