#include "tests/support/device_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>

#include "base/error.h"

namespace espalier::cuda {
namespace {

// Pages of this size are protected, and let go, a hundred times as fast as 512 small ones.
constexpr size_t kPage = size_t{2} << 20, kAlignment = 512;

size_t round_up(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

// Says why, and then lets the access fail again, by the system's rules.
void refuse(int, siginfo_t* info, void*) {
  constexpr std::string_view kText = "the host reads or writes the device's memory, outside of kernels and copies\n";
  if (DeviceMemory::instance().has(info->si_addr) && ::write(STDERR_FILENO, kText.data(), kText.size()) < 0) _exit(1);
  ::signal(SIGSEGV, SIG_DFL);
}

}  // namespace

DeviceMemory& DeviceMemory::instance() {
  static auto* const memory = new DeviceMemory;  // stays: tensors may outlive what is static
  return *memory;
}

DeviceMemory::DeviceMemory() : free_{{0, kBytes}} {
  void* const memory = ::mmap(nullptr, kBytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ESPALIER_CHECK(memory != MAP_FAILED, kBytes, " bytes of addresses: ", std::strerror(errno));
  begin_ = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(memory), kPage));
  ::madvise(begin_, kBytes, MADV_HUGEPAGE);
  struct sigaction action = {};
  action.sa_sigaction = &refuse;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
}

void* DeviceMemory::allocate(size_t bytes) {
  const Open open;
  const std::lock_guard lock(mutex_);
  const size_t size = std::max(round_up(bytes, kAlignment), kAlignment);
  const auto place = std::find_if(free_.begin(), free_.end(), [&](const auto& part) { return part.second >= size; });
  ESPALIER_CHECK(place != free_.end(), "the device's memory of ", kBytes, " bytes has no room for ", bytes);
  const auto [begin, length] = *place;
  free_.erase(place);
  if (length > size) free_[begin + size] = length - size;
  used_[begin] = size;
  if (begin + size > ever_used_) {
    ever_used_ = round_up(begin + size, kPage);
    protect(PROT_READ | PROT_WRITE);
  }
  std::memset(begin_ + begin, 0xFF, size);
  return begin_ + begin;
}

void DeviceMemory::release(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto used = used_.find(static_cast<size_t>(static_cast<char*>(memory) - begin_));
  ESPALIER_CHECK(used != used_.end(), memory, " was not allocated");
  auto part = free_.emplace(used->first, used->second).first;
  used_.erase(used);
  if (const auto next = std::next(part); next != free_.end() && part->first + part->second == next->first) {
    part->second += next->second;
    free_.erase(next);
  }
  if (part == free_.begin()) return;
  if (const auto before = std::prev(part); before->first + before->second == part->first) {
    before->second += part->second;
    free_.erase(part);
  }
}

void DeviceMemory::protect(int protection) const {
  if (ever_used_ == 0) return;
  ESPALIER_CHECK(::mprotect(begin_, ever_used_, protection) == 0, "mprotect: ", std::strerror(errno));
}

DeviceMemory::Open::Open() {
  DeviceMemory& memory = instance();
  const std::lock_guard lock(memory.mutex_);
  if (memory.num_open_++ == 0) memory.protect(PROT_READ | PROT_WRITE);
}

DeviceMemory::Open::~Open() {
  DeviceMemory& memory = instance();
  const std::lock_guard lock(memory.mutex_);
  if (--memory.num_open_ == 0) memory.protect(PROT_NONE);
}

}  // namespace espalier::cuda
