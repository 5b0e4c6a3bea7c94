#include "base/stack_record.h"

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

// Alone in its section of the program, whose begin and end the linker tells.
__attribute__((noinline, section("waits_in_here"))) void waits_in_here(sem_t* never) {
  while (sem_wait(never) != 0) {
  }
  asm volatile("");  // no tail call
}
extern "C" const char __start_waits_in_here[], __stop_waits_in_here[];

bool is_waiting(uint64_t address) {
  return address > reinterpret_cast<uint64_t>(__start_waits_in_here) &&
         address < reinterpret_cast<uint64_t>(__stop_waits_in_here);
}

// How many frames of the answer are in that function; -1 without an answer.
int64_t num_frames_that_wait(const StackRecord& record, pid_t thread) {
  const std::optional<std::vector<uint64_t>> frames = await_stack(record, thread);
  return frames ? std::count_if(frames->begin(), frames->end(), is_waiting) : -1;
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
    EXPECT_EQ(std::count_if(frames->begin(), frames->end(), is_waiting), 1) << frames->size();
    EXPECT_FALSE(is_waiting(frames->front())) << "the innermost is sem_wait's";
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
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    answer_stack_requests(record);
    std::thread other([&] {
      const auto number = static_cast<pid_t>(syscall(SYS_gettid));
      if (write(ends[1], &number, sizeof number) != sizeof number) _exit(1);
      sem_t never;
      sem_init(&never, 0, 0);
      waits_in_here(&never);
    });
    while (true) poll(nullptr, 0, -1);
  }
  close(ends[1]);
  pid_t other = 0;
  ASSERT_EQ(read(ends[0], &other, sizeof other), static_cast<ssize_t>(sizeof other));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ASSERT_TRUE(request_stack(record, pid, pid));
  EXPECT_EQ(num_frames_that_wait(record, pid), 0);
  ASSERT_TRUE(request_stack(record, pid, other));
  EXPECT_EQ(num_frames_that_wait(record, other), 1);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  close(ends[0]);
}

}  // namespace stack_record_test
}  // namespace espalier
