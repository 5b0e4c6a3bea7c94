// A fixed number of threads for work on text and files. Tensors use at::parallel_for instead.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace espalier {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);  // a UserError where the system refuses a thread
  ~ThreadPool();                         // finishes what was submitted
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs `work` on some thread; the future holds its result or the exception that it threw.
  template <class Work>
  auto submit(Work work) -> std::future<decltype(work())> {
    auto task = std::make_shared<std::packaged_task<decltype(work())()>>(std::move(work));
    auto result = task->get_future();
    enqueue([task] { (*task)(); });
    return result;
  }
  int num_threads() const { return static_cast<int>(threads_.size()); }

 private:
  void enqueue(std::function<void()> task);
  void run();
  void stop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// Cores this process may use (its affinity mask).
int num_usable_cores();

// " is more than 8 threads for ...", to follow the name of an option; empty for a number that is not too large. Threads
// of a tensor library wait for each other at the end of every operation: a thousand on two cores take minutes for
// nothing.
std::string why_too_many_threads(int64_t num_threads);

}  // namespace espalier
