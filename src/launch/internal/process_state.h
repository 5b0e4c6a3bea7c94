// What the kernel says of a process.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace espalier::launch::internal {

struct ProcessState {
  char state = 'X';  // as in /proc: 'T' stopped, 'D' any thread of it waits for a disk
  uint64_t cpu_ticks = 0;
};

ProcessState state_of(pid_t pid);

}  // namespace espalier::launch::internal
