// espalier starts in milliseconds and has no tensors; espalier-engine, next to it, has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier {

// How threads of programs that this one starts or becomes wait for work: libgomp reads these variables when it is
// loaded. On cores of their own they look for it for some 0.3 ms before they sleep (GOMP_SPINCOUNT), as waking one
// takes longer than most operations of a small model; where other programs keep the cores busy they sleep at once
// (OMP_WAIT_POLICY), as a core on which one spins is taken from those who work. A batch system's job has its cores for
// itself. What the user has set stays. `num_processes`: those that will be started on this machine, together with a
// thread for each core or with OMP_NUM_THREADS each. Returns whether they sleep at once because the cores are busy.
bool choose_how_threads_wait(int64_t num_processes = 1);

// Replaces this process by `espalier-engine COMMAND ARGUMENTS`. Returns only by throwing.
[[noreturn]] void become_engine(const std::string& command, const std::vector<std::string>& arguments);

// Runs the same as a child and waits for it: its exit code, after it has said what was wrong. Throws where it cannot be
// started, or was killed.
int run_engine(const std::string& command, const std::vector<std::string>& arguments);

// Programs in one folder: "espalier", "espalier-engine".
std::string path_beside_this_program(const std::string& name);

}  // namespace espalier
