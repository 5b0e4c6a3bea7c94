#include "tensor/cpu_allocator.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "base/error.h"
#include "tensor/memory_arena.h"

namespace espalier::tensor {
namespace cpu_allocator_test {

constexpr size_t kMegabyte = size_t{1} << 20;

struct Block {
  char* data;
  size_t size;
  char mark;
};

TEST(MemoryArena, BlocksNeverOverlapUnderRandomUse) {
  MemoryArena arena(64 * kMegabyte);
  std::mt19937 random(7);
  std::vector<Block> blocks;
  for (int round = 0; round < 3000; ++round) {
    if (random() % 2 == 0 || blocks.empty()) {
      const size_t size = 1 + random() % (kMegabyte / 2);
      char* data = static_cast<char*>(arena.allocate(size));
      if (data == nullptr) continue;
      const char mark = static_cast<char>(round);
      data[0] = data[size / 2] = data[size - 1] = mark;
      blocks.push_back({data, size, mark});
    } else {
      const size_t chosen = random() % blocks.size();
      const Block block = blocks[chosen];
      EXPECT_EQ(block.data[0], block.mark);
      EXPECT_EQ(block.data[block.size / 2], block.mark);
      EXPECT_EQ(block.data[block.size - 1], block.mark);
      arena.free(block.data);
      blocks[chosen] = blocks.back();
      blocks.pop_back();
    }
  }
  for (const Block& block : blocks) arena.free(block.data);
  EXPECT_EQ(arena.bytes_in_use(), 0u);
  // All ranges have merged again: the whole arena is one block.
  void* whole = arena.allocate(arena.capacity());
  EXPECT_NE(whole, nullptr);
  arena.free(whole);
}

TEST(MemoryArena, TheSmallestRangeThatFitsIsTakenAndReused) {
  MemoryArena arena(64 * kMegabyte);
  void* large = arena.allocate(8 * kMegabyte);
  void* keep = arena.allocate(kMegabyte);
  void* small = arena.allocate(2 * kMegabyte);
  void* rest = arena.allocate(kMegabyte);
  arena.free(large);
  arena.free(small);
  EXPECT_EQ(arena.allocate(2 * kMegabyte - 5), small);
  EXPECT_EQ(arena.allocate(8 * kMegabyte), large);
  EXPECT_EQ(arena.high_water(), 12 * kMegabyte);
  EXPECT_TRUE(arena.owns(keep) && arena.owns(rest));
}

TEST(MemoryArena, FullArenaGivesNothing) {
  MemoryArena arena(4 * kMegabyte);
  EXPECT_EQ(arena.allocate(4 * kMegabyte + 1), nullptr);
  EXPECT_NE(arena.allocate(4 * kMegabyte), nullptr);
  EXPECT_EQ(arena.allocate(1), nullptr);
}

TEST(MemoryArena, ReleasedRangesReadAsZeroAndStayUsable) {
  MemoryArena arena(16 * kMegabyte);
  char* block = static_cast<char*>(arena.allocate(4 * kMegabyte));
  block[100] = 'x';
  arena.free(block);
  arena.release();
  char* again = static_cast<char*>(arena.allocate(4 * kMegabyte));
  EXPECT_EQ(again, block);
  EXPECT_EQ(again[100], 0);
}

TEST(MemoryArena, FreeingWhatWasNotAllocatedIsABug) {
  MemoryArena arena(4 * kMegabyte);
  char* block = static_cast<char*>(arena.allocate(kMegabyte));
  EXPECT_THROW(arena.free(block + MemoryArena::kGranule), InternalError);
}

// The tests of this program share the process: the standard allocator is put back after it.
class CpuAllocatorTest : public testing::Test {
 protected:
  void SetUp() override { install_cpu_allocator(); }
  void TearDown() override { c10::SetCPUAllocator(standard_, 1); }
  c10::Allocator* standard_ = c10::GetCPUAllocator();
};

TEST_F(CpuAllocatorTest, TensorsAreAlignedCountedAndReused) {
  const size_t before = cpu_memory().bytes_in_use;
  void* address = nullptr;
  {
    const at::Tensor x = at::ones({3, 1000003});
    address = x.data_ptr();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 64, 0u);
    EXPECT_GE(cpu_memory().bytes_in_use - before, x.nbytes());
    EXPECT_EQ(x.sum().item<double>(), 3 * 1000003.0);
  }
  EXPECT_EQ(cpu_memory().bytes_in_use, before);
  EXPECT_GE(cpu_memory().peak_bytes_in_use, before + 3 * 1000003 * 4);
  const at::Tensor again = at::zeros({3, 1000003});
  EXPECT_EQ(again.data_ptr(), address);
  EXPECT_EQ(again.abs().max().item<double>(), 0.0);
}

TEST_F(CpuAllocatorTest, RepeatedStepsHoldNoMoreMemory) {
  const auto step = [] {
    std::vector<at::Tensor> kept;
    for (int64_t layer = 1; layer < 9; ++layer) kept.push_back(at::ones({layer * 100000}) * 2.0f);
  };
  step();
  const size_t held = cpu_memory().held_bytes;
  for (int repeat = 0; repeat < 20; ++repeat) step();
  EXPECT_EQ(cpu_memory().held_bytes, held);
}

TEST_F(CpuAllocatorTest, SmallAndEmptyTensorsWork) {
  const at::Tensor small = at::arange(7), empty = at::empty({0, 33});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data_ptr()) % 64, 0u);
  EXPECT_EQ(small.sum().item<int64_t>(), 21);
  EXPECT_EQ(empty.numel(), 0);
}

}  // namespace cpu_allocator_test
}  // namespace espalier::tensor
