#include "tensor/memory_arena.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"

namespace espalier::tensor {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }
}  // namespace

MemoryArena::MemoryArena(size_t capacity) {
  for (capacity_ = round_up(capacity, kHugePage); capacity_ >= kHugePage;
       capacity_ = round_up(capacity_ / 2, kHugePage)) {
    void* reserved =
        mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved != MAP_FAILED) {
      base_ = static_cast<char*>(reserved);
      break;
    }
    if (capacity_ == kHugePage) break;
  }
  if (base_ == nullptr) {
    capacity_ = 0;
    return;
  }
  madvise(base_, capacity_, MADV_HUGEPAGE);  // advice only: fewer page faults and translations where it is followed
  insert_free(0, capacity_);
}

MemoryArena::~MemoryArena() {
  if (base_ != nullptr) munmap(base_, capacity_);
}

void* MemoryArena::allocate(size_t bytes) {
  const size_t size = round_up(std::max<size_t>(bytes, 1), kGranule);
  const auto found = free_by_size_.lower_bound({size, 0});
  if (found == free_by_size_.end()) return nullptr;
  const auto [free_size, offset] = *found;
  erase_free(offset, free_size);
  if (free_size > size) insert_free(offset + size, free_size - size);
  used_.emplace(offset, size);
  bytes_in_use_ += size;
  high_water_ = std::max(high_water_, offset + size);
  return base_ + offset;
}

void MemoryArena::free(void* block) {
  size_t offset = static_cast<size_t>(static_cast<char*>(block) - base_);
  const auto used = used_.find(offset);
  ESPALIER_CHECK(used != used_.end(), "no block begins at offset ", offset);
  size_t size = used->second;
  used_.erase(used);
  bytes_in_use_ -= size;
  const auto after = free_by_offset_.find(offset + size);
  if (after != free_by_offset_.end()) {
    const size_t after_size = after->second;
    erase_free(offset + size, after_size);
    size += after_size;
  }
  const auto next = free_by_offset_.lower_bound(offset);
  if (next != free_by_offset_.begin()) {
    const auto [before, before_size] = *std::prev(next);
    if (before + before_size == offset) {
      erase_free(before, before_size);
      offset = before;
      size += before_size;
    }
  }
  insert_free(offset, size);
}

bool MemoryArena::owns(const void* pointer) const {
  const char* address = static_cast<const char*>(pointer);
  return base_ != nullptr && address >= base_ && address < base_ + capacity_;
}

void MemoryArena::release() {
  for (const auto& [offset, size] : free_by_offset_) {
    const size_t touched = std::min(offset + size, high_water_);
    if (touched > offset) madvise(base_ + offset, touched - offset, MADV_DONTNEED);
  }
}

void MemoryArena::insert_free(size_t offset, size_t size) {
  free_by_offset_.emplace(offset, size);
  free_by_size_.emplace(size, offset);
}

void MemoryArena::erase_free(size_t offset, size_t size) {
  free_by_offset_.erase(offset);
  free_by_size_.erase({size, offset});
}

}  // namespace espalier::tensor
