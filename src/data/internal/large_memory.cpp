#include "data/internal/large_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace espalier::data::internal {

std::shared_ptr<void> large_memory(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  bytes = std::max<size_t>(bytes, 1);
  if (bytes < kHugePage)
    return std::shared_ptr<void>(::operator new(bytes), [](void* memory) { ::operator delete(memory); });
  constexpr std::align_val_t kAlignment{kHugePage};
  std::shared_ptr<void> memory(::operator new(bytes, kAlignment),
                               [](void* memory) { ::operator delete(memory, kAlignment); });
  ::madvise(memory.get(), bytes, MADV_HUGEPAGE);  // advice: slower without it, not wrong
  return memory;
}

}  // namespace espalier::data::internal
