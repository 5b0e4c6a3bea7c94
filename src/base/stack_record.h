// The stack of a thread, left in shared memory by the thread itself when another process asks for it.
//
//   answer_stack_requests(record);                  // in the process that is asked, once, by any thread
//   if (request_stack(record, pid, thread))         // in the one that asks; one request at a time
//     ... frames = answered_stack(record, thread)   // nothing while there is no answer
//
// A real-time signal's handler writes it, so that it works wherever the thread waits or computes. It takes no memory
// and no lock of ours (glibc's unwinder takes none either, from 2.35 on). A stopped process and a thread in an
// uninterruptible wait do not answer.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

namespace espalier {

inline constexpr int kMostFrames = 96;

// One answers, one asks; is in memory that both map.
struct StackRecord {
  std::atomic<int32_t> signal;    // that asks; 0: this process answers none
  std::atomic<int32_t> wanted;    // the thread that is asked; its handler takes the request by setting it to 0
  std::atomic<int32_t> answered;  // the thread whose frames are below
  std::atomic<int32_t> num_frames;
  uint64_t frames[kMostFrames];
};

void answer_stack_requests(StackRecord& record);

// False if this process answers none, or has no such thread.
bool request_stack(StackRecord& record, pid_t pid, pid_t thread);
// Where the thread was, and the return addresses of its callers.
std::optional<std::vector<uint64_t>> answered_stack(const StackRecord& record, pid_t thread);

}  // namespace espalier
