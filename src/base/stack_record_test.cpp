#include "base/stack_record.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace espalier {
namespace stack_record_test {

StackRecord& shared_record() {
  void* const memory = mmap(nullptr, sizeof(StackRecord), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *static_cast<StackRecord*>(memory);
}

std::optional<std::vector<uint64_t>> await_stack(const StackRecord& record, pid_t thread, double seconds = 20) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (auto frames = answered_stack(record, thread)) return frames;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::nullopt;
}

// A function whose stretch of code is known: from itself to the next page or so.
__attribute__((noinline)) void waits_in_here(sem_t* never) {
  while (sem_wait(never) != 0) {
  }
  asm volatile("");  // no tail call
}

bool is_in(uint64_t address, void (*function)(sem_t*)) {
  const auto start = reinterpret_cast<uint64_t>(function);
  return address > start && address < start + 256;
}

// How many frames of the answer are in that function; -1 without an answer.
int64_t num_frames_in(const StackRecord& record, pid_t thread, void (*function)(sem_t*)) {
  const std::optional<std::vector<uint64_t>> frames = await_stack(record, thread);
  if (!frames) return -1;
  return std::count_if(frames->begin(), frames->end(), [&](uint64_t frame) { return is_in(frame, function); });
}

struct Asleep {
  Asleep() {
    pid = fork();
    if (pid != 0) return;
    answer_stack_requests(record);
    sem_t never;
    sem_init(&never, 0, 0);
    waits_in_here(&never);
    _exit(0);
  }
  ~Asleep() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  void await_start() const {
    while (record.signal == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  StackRecord& record = shared_record();
  pid_t pid = -1;
};

TEST(StackRecord, OfAProcessThatWaitsForEver) {
  const Asleep child;
  child.await_start();
  for (int again = 0; again < 3; ++again) {  // answering does not wake it
    ASSERT_TRUE(request_stack(child.record, child.pid, child.pid));
    const auto frames = await_stack(child.record, child.pid);
    ASSERT_TRUE(frames);
    size_t found = 0;
    for (const uint64_t frame : *frames) found += is_in(frame, waits_in_here) ? 1 : 0;
    EXPECT_EQ(found, 1U) << frames->size();
    EXPECT_FALSE(is_in(frames->front(), waits_in_here)) << "the innermost is sem_wait's";
  }
}

TEST(StackRecord, OfAStoppedProcessThereIsNoneUntilItGoesOn) {
  const Asleep child;
  child.await_start();
  kill(child.pid, SIGSTOP);
  EXPECT_TRUE(request_stack(child.record, child.pid, child.pid));
  EXPECT_FALSE(await_stack(child.record, child.pid, 0.3));
  kill(child.pid, SIGCONT);
  EXPECT_TRUE(await_stack(child.record, child.pid));
}

TEST(StackRecord, IsNotAskedOfThoseThatDoNotAnswer) {
  StackRecord& record = shared_record();
  EXPECT_FALSE(request_stack(record, getpid(), getpid())) << "the signal would end this program";
  const Asleep child;
  child.await_start();
  EXPECT_FALSE(request_stack(child.record, child.pid, getpid())) << "a thread of another process";
}

TEST(StackRecord, OfAThreadIsThatThreadsOwn) {
  StackRecord& record = shared_record();
  const pid_t pid = fork();
  if (pid == 0) {
    answer_stack_requests(record);
    std::thread other([] {
      sem_t never;
      sem_init(&never, 0, 0);
      waits_in_here(&never);
    });
    while (true) poll(nullptr, 0, -1);
  }
  while (record.signal == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ASSERT_TRUE(request_stack(record, pid, pid));
  const int64_t in_main = num_frames_in(record, pid, waits_in_here);
  int64_t in_other = 0;
  for (pid_t thread = pid + 1; thread < pid + 2000 && in_other == 0; ++thread)  // numbers are given in order
    if (request_stack(record, pid, thread)) in_other = num_frames_in(record, thread, waits_in_here);
  EXPECT_EQ(in_main, 0);
  EXPECT_EQ(in_other, 1);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace stack_record_test
}  // namespace espalier
