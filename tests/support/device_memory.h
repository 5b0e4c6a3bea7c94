// Memory of the device that a machine without a GPU stands in for: this process's, but no one may read or write it
// except where a device would, in kernels (device_on_host.h) and in copies. Elsewhere the program ends with a word, as
// it would on a GPU: what is on the device was taken for the host's.
//
// Linux only. What is not written yet is NaN, -1 as an integer.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace espalier::cuda {

class DeviceMemory {
 public:
  static constexpr size_t kBytes = size_t{512} << 20;

  static DeviceMemory& instance();

  // At multiples of 512 bytes, as CUDA's.
  void* allocate(size_t bytes);
  void release(void* memory);

  char* begin() const { return begin_; }
  bool has(const void* address) const { return address >= begin_ && address < begin_ + kBytes; }

  // While there is one, all threads can read and write.
  class Open {
   public:
    Open();
    ~Open();
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
  };

 private:
  DeviceMemory();
  void protect(int protection) const;

  char* begin_;
  std::mutex mutex_;
  std::map<size_t, size_t> free_, used_;  // where they begin, and their bytes
  size_t ever_used_ = 0;                  // nothing was allocated from there on
  int num_open_ = 0;
};

}  // namespace espalier::cuda
