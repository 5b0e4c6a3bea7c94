// espalier starts in milliseconds and has no tensors; espalier-engine, next to it, has.
#pragma once

#include <string>
#include <vector>

namespace espalier {

// Makes the threads of programs that this one starts or becomes sleep where they wait for work (OMP_WAIT_POLICY
// passive): libgomp reads the variable when it is loaded. What the user has set stays.
void let_waiting_threads_sleep();

// Replaces this process by `espalier-engine COMMAND ARGUMENTS`. Returns only by throwing.
[[noreturn]] void become_engine(const std::string& command, const std::vector<std::string>& arguments);

// Runs the same as a child and waits for it: its exit code, after it has said what was wrong. Throws where it cannot be
// started, or was killed.
int run_engine(const std::string& command, const std::vector<std::string>& arguments);

// Programs in one folder: "espalier", "espalier-engine".
std::string path_beside_this_program(const std::string& name);

}  // namespace espalier
