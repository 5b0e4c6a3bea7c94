// Where the ranks of this machine are in their code: the stacks of their threads, alike ones together.
//
//   const std::vector<RankStacks> stacks = collect_stacks(board, first_rank, pids, Threads::kAll);
//   write(stacks_text(stacks));    // a paragraph for each stack, with the ranks that are there
//   say(stacks_summary(stacks));   // "ranks 0, 2 in pipeline::Runner::run (... futex_wait); rank 1: is stopped ..."
//
// The ranks write their stacks themselves (base/stack_record.h); this reads names from the files that they run.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/whereabouts.h"

namespace espalier::launch {

struct ThreadStack {
  std::string thread;               // its name; "main thread" for that one
  std::vector<std::string> frames;  // innermost first: "at::add (libtorch_cpu.so)"
  std::string why_none = {};        // it did not answer: "waits for a disk or a file system and cannot answer"
};

struct RankStacks {
  int64_t rank = 0;
  pid_t pid = -1;
  std::string why_none;  // no stack, or none of the main thread: "is stopped (SIGSTOP, or a debugger)"
  std::vector<ThreadStack> threads;
};

// kAll also interrupts waits of threads that are not ours: for ranks that hang anyway.
enum class Threads { kMain, kAll };

// `pids` by local rank, -1 for those that have ended, which are left out. Waits a second at most for each answer, and
// about five for all; reading the functions' names from files that are not in memory takes additional time.
std::vector<RankStacks> collect_stacks(const WhereaboutsBoard& board, int64_t first_rank,
                                       const std::vector<pid_t>& pids, Threads threads);

std::string stacks_text(const std::vector<RankStacks>& ranks);
// Of the main threads, in one line.
std::string stacks_summary(const std::vector<RankStacks>& ranks);

// Writes them to a new file FOLDER/stacks_<time>_<host>.txt, with `reason` on top, and returns its path; empty, with a
// warning, if that fails.
std::string write_stacks(const std::string& folder, const std::string& reason, const std::vector<RankStacks>& ranks);

}  // namespace espalier::launch
