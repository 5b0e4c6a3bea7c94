// The memory of CPU tensors: aligned to 64 bytes, reused from step to step, counted.
//
// Large blocks come from one arena on huge pages (memory_arena.h), small ones from the C library.
#pragma once

#include <cstddef>

namespace espalier::tensor {

// Makes all CPU tensors that are created from now on use it. Once at the start of a program; later calls do nothing.
void install_cpu_allocator();

struct CpuMemory {
  size_t bytes_in_use = 0;       // of tensors' large blocks, now
  size_t peak_bytes_in_use = 0;  // since the start, or since reset_peak_cpu_memory
  size_t held_bytes = 0;         // what the arena may hold of the process's memory, free blocks included
};
CpuMemory cpu_memory();
void reset_peak_cpu_memory();

// Gives free blocks back to the system: before a phase that needs other memory.
void release_free_cpu_memory();

}  // namespace espalier::tensor
