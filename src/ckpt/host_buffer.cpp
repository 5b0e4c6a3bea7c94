#include "ckpt/host_buffer.h"

#include <ATen/Parallel.h>
#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace espalier::ckpt {
namespace {

constexpr int64_t kTouchGrain = int64_t{4} << 20;

}  // namespace

HostBuffer::~HostBuffer() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(size_));
}

void HostBuffer::grow(int64_t bytes) {
  if (bytes <= size_) return;
  if (data_ != nullptr) ::munmap(std::exchange(data_, nullptr), static_cast<size_t>(std::exchange(size_, 0)));
  void* memory =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw UserError(concat("no memory for what a save copies at once: it needs ", format_count(bytes), " bytes (",
                           format_bytes(static_cast<double>(bytes)), ")"));
  ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a hint; without it the copy is slower, not wrong
  data_ = static_cast<uint8_t*>(memory);
  size_ = bytes;
  // First touch, in parallel: page faults would otherwise be paid in the first save.
  at::parallel_for(0, bytes, kTouchGrain, [&](int64_t begin, int64_t end) {
    std::memset(data_ + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace espalier::ckpt
