#include "base/stack_record.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace espalier {
namespace {

std::atomic<StackRecord*> own_record{nullptr};

pid_t own_thread_id() { return static_cast<pid_t>(syscall(SYS_gettid)); }

void* interrupted_at(const void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(machine.pc);
#else
  static_cast<void>(machine);
  return nullptr;
#endif
}

// The frames above the interrupted one are the handler's.
void write_stack(int, siginfo_t*, void* context) {
  const int kept = errno;
  StackRecord* const record = own_record.load();
  const pid_t thread = own_thread_id();
  int32_t wanted = thread;
  if (record != nullptr && record->wanted.compare_exchange_strong(wanted, 0)) {
    void* frames[kMostFrames + 4];
    const int count = backtrace(frames, kMostFrames + 4);
    const void* const start = interrupted_at(context);
    int first = 0;
    while (first < count && frames[first] != start) ++first;
    if (first == count) first = std::min(count, 2);
    const int num_frames = std::min(count - first, kMostFrames);
    for (int at = 0; at < num_frames; ++at) record->frames[at] = reinterpret_cast<uint64_t>(frames[first + at]);
    record->num_frames.store(num_frames);
    record->answered.store(thread, std::memory_order_release);
  }
  errno = kept;
}

}  // namespace

void answer_stack_requests(StackRecord& record) {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads the unwinder, which a handler must not
  own_record = &record;
  const int number = SIGRTMIN + 3;
  struct sigaction action = {};
  action.sa_sigaction = write_stack;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  if (sigaction(number, &action, nullptr) == 0) record.signal = number;
}

bool request_stack(StackRecord& record, pid_t pid, pid_t thread) {
  const int number = record.signal;
  if (number == 0) return false;
  record.answered = 0;
  record.wanted = thread;
  return syscall(SYS_tgkill, pid, thread, number) == 0;
}

std::optional<std::vector<uint64_t>> answered_stack(const StackRecord& record, pid_t thread) {
  if (record.answered.load(std::memory_order_acquire) != thread) return std::nullopt;
  const int count = std::clamp(record.num_frames.load(), 0, kMostFrames);
  return std::vector<uint64_t>(record.frames, record.frames + count);
}

}  // namespace espalier
