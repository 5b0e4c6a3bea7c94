// Bytes of tensors in the memory of a device, copied to that of the machine.
//
// They pass through two blocks of page-locked memory in turn: one is filled while the other is emptied. More of it is
// never held, however large the state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace espalier::ckpt {

class DeviceReader {
 public:
  // `device`: may be the CPU's own, whose blocks are then plain memory.
  explicit DeviceReader(at::Device device, int64_t block_bytes = int64_t{256} << 20);
  // `from`: bytes on the device. Returns when all have arrived.
  void read(const uint8_t* from, int64_t bytes, uint8_t* to);

 private:
  void start(const uint8_t* from, int64_t bytes, const at::Tensor& block) const;

  at::Device device_;
  int64_t block_bytes_;
  at::Tensor blocks_[2];  // made when they are needed first
};

}  // namespace espalier::ckpt
