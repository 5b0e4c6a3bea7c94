// Memory that processes of one machine share, and how they wake one another. Without torch.
//
// It is an anonymous file (memfd) without a name to clean up and without the size limit of /dev/shm; others open it
// through /proc/PID/fd, which the kernel permits to processes of the same user that see each other's numbers. Only what
// is touched takes memory, so the size may be generous.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace espalier::dist {

class SharedMemory {
 public:
  // `bytes` zeros. Throws std::runtime_error with the system's reason.
  static SharedMemory create(size_t bytes);
  // What create() made elsewhere; `address` from address(). Throws std::runtime_error when it is not accessible:
  // another machine, another user, a container of its own.
  static SharedMemory open(const std::string& address);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // Process, descriptor, size, and a random number that proves that the right file was found.
  const std::string& address() const { return address_; }
  char* data() const { return data_; }  // on a page boundary

  // A claim on byte `index` lasts until this process ends, however it ends, or lets go of the memory.
  void claim(int64_t index) const;
  bool is_claimed_by_another(int64_t index) const;

 private:
  SharedMemory(int descriptor, size_t bytes);
  int descriptor_ = -1;
  char* mapping_ = nullptr;
  char* data_ = nullptr;
  size_t bytes_ = 0;
  std::string address_;
};

// In shared memory; zeros are a valid bell. One process listens, any may ring.
//
//   const uint32_t heard = bell.heard();
//   ... look whether what is awaited has come; if not:
//   bell.sleep(heard, 100ms);   // returns at once if the bell rang since heard()
class alignas(64) Bell {
 public:
  void ring();
  uint32_t heard() const { return rings_.load(std::memory_order_seq_cst); }
  void sleep(uint32_t heard, std::chrono::microseconds longest);

 private:
  std::atomic<uint32_t> rings_;
  std::atomic<uint32_t> sleeping_;
};

}  // namespace espalier::dist
