// Memory for what a save copies at once, kept from save to save. Huge pages where the system has them.
#pragma once

#include <cstdint>

namespace espalier::ckpt {

class HostBuffer {
 public:
  HostBuffer() = default;
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  void grow(int64_t bytes);  // content is lost; UserError when there is no memory
  uint8_t* data() { return data_; }
  int64_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace espalier::ckpt
