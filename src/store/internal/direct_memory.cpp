#include "store/internal/direct_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "base/error.h"

namespace espalier::store {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

}  // namespace

void FreeDirectMemory::operator()(char* memory) const { std::free(memory); }

DirectMemory make_direct_memory(int64_t bytes) {
  ESPALIER_CHECK(bytes > 0 && bytes % kHugePageBytes == 0, bytes);
  const auto size = static_cast<size_t>(bytes);
  DirectMemory memory(static_cast<char*>(std::aligned_alloc(kHugePageBytes, size)));
  if (memory == nullptr) throw std::bad_alloc();
  ::madvise(memory.get(), size, MADV_HUGEPAGE);  // advice: slower without it, not wrong
  return memory;
}

}  // namespace espalier::store
