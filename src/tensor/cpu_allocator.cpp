#include "tensor/cpu_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "base/error.h"
#include "base/format.h"
#include "tensor/memory_arena.h"

namespace espalier::tensor {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMinArenaBytes = 256 << 10;

size_t physical_bytes() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void free_block(void* block);

class CpuAllocator final : public c10::Allocator {
 public:
  CpuAllocator() : arena_(physical_bytes()) {}

  c10::DataPtr allocate(size_t bytes) override {
    void* block = bytes == 0 ? nullptr : allocate_block(bytes);
    return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }

  void free(void* block) {
    if (!arena_.owns(block)) return std::free(block);
    const std::lock_guard lock(mutex_);
    arena_.free(block);
  }

  CpuMemory memory() {
    const std::lock_guard lock(mutex_);
    return {arena_.bytes_in_use(), peak_, arena_.high_water()};
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    peak_ = arena_.bytes_in_use();
  }
  void release() {
    const std::lock_guard lock(mutex_);
    arena_.release();
  }

 private:
  void* allocate_block(size_t bytes) {
    if (bytes >= kMinArenaBytes) {
      const std::lock_guard lock(mutex_);
      if (void* block = arena_.allocate(bytes)) {
        peak_ = std::max(peak_, arena_.bytes_in_use());
        return block;
      }
    }
    void* block = nullptr;
    if (posix_memalign(&block, kAlignment, bytes) != 0) {
      throw UserError(concat("out of memory: a tensor of ", format_bytes(static_cast<double>(bytes)),
                             " in addition to ", format_bytes(static_cast<double>(memory().bytes_in_use)),
                             " of others on a machine with ", format_bytes(static_cast<double>(physical_bytes())),
                             ". Use a smaller --micro-batch-size."));
    }
    return block;
  }

  std::mutex mutex_;
  MemoryArena arena_;
  size_t peak_ = 0;
};

// Never destroyed: tensors of static lifetime are freed after it would be.
CpuAllocator& allocator() {
  static CpuAllocator* const instance = new CpuAllocator;
  return *instance;
}

void free_block(void* block) {
  if (block != nullptr) allocator().free(block);
}

}  // namespace

void install_cpu_allocator() { c10::SetCPUAllocator(&allocator(), /*priority=*/1); }
CpuMemory cpu_memory() { return allocator().memory(); }
void reset_peak_cpu_memory() { allocator().reset_peak(); }
void release_free_cpu_memory() { allocator().release(); }

}  // namespace espalier::tensor
