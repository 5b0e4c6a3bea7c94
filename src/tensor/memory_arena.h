// One range of address space from which large blocks are taken and to which they return: best fit, neighbours merged.
//
// Memory that was touched stays with the process, so that the next step of training finds its pages there: a page that
// is touched for the first time costs the kernel as much time as filling it with a product's results does (1 to 2.4
// GB/s measured). Not thread-safe. Plain header.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace espalier::tensor {

class MemoryArena {
 public:
  // Reserves `capacity` bytes of addresses (not of memory), or the largest half, quarter, ... that the system grants.
  explicit MemoryArena(size_t capacity);
  ~MemoryArena();
  MemoryArena(const MemoryArena&) = delete;
  MemoryArena& operator=(const MemoryArena&) = delete;

  // A block of at least `bytes`, aligned to kGranule; nullptr when no free range is large enough.
  void* allocate(size_t bytes);
  void free(void* block);
  bool owns(const void* pointer) const;

  // Gives the memory of all free ranges back to the system.
  void release();

  size_t bytes_in_use() const { return bytes_in_use_; }
  // End of the highest block there ever was: what the arena can hold of the process's memory at most.
  size_t high_water() const { return high_water_; }
  size_t capacity() const { return capacity_; }

  static constexpr size_t kGranule = 4096;

 private:
  void insert_free(size_t offset, size_t size);
  void erase_free(size_t offset, size_t size);

  char* base_ = nullptr;
  size_t capacity_ = 0, bytes_in_use_ = 0, high_water_ = 0;
  std::map<size_t, size_t> free_by_offset_;           // offset -> size
  std::set<std::pair<size_t, size_t>> free_by_size_;  // (size, offset)
  std::unordered_map<size_t, size_t> used_;           // offset -> size
};

}  // namespace espalier::tensor
