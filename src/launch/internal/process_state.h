// What the kernel says of a process.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace espalier::launch::internal {

struct ProcessState {
  char state = 'X';  // as in /proc: 'T' stopped, 'D' any thread of it waits for a disk
  uint64_t cpu_ticks = 0;
  pid_t parent = 0, session = 0;  // 0: there is no such process
};

ProcessState state_of(pid_t pid);
// The same without a look at its threads: 'D' if the main one waits for a disk.
ProcessState state_of_main_thread(pid_t pid);
// Of one thread alone: 'D' if that one waits for a disk, 'X' if it has ended.
ProcessState state_of_thread(pid_t pid, pid_t thread);

}  // namespace espalier::launch::internal
