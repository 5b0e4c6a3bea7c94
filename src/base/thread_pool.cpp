#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <system_error>

#include "base/error.h"

namespace espalier {

ThreadPool::ThreadPool(int num_threads) {
  const int count = std::max(1, num_threads);
  threads_.reserve(static_cast<size_t>(count));
  try {
    for (int thread = 0; thread < count; ++thread) threads_.emplace_back([this] { run(); });
  } catch (const std::system_error& error) {
    const size_t started = threads_.size();
    stop();
    throw UserError(concat("cannot start thread ", started + 1, " of ", count, ": ", error.code().message(),
                           ". Use fewer threads, or raise the limit of threads (ulimit -u, or the container's) or of ",
                           "memory (ulimit -v)."));
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::enqueue(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void ThreadPool::run() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

int num_usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return 1;
  return std::max(1, CPU_COUNT(&mask));
}

std::string why_too_many_threads(int64_t num_threads) {
  constexpr int64_t kMostForACore = 8;
  const int64_t cores = num_usable_cores(), most = kMostForACore * cores;
  if (num_threads <= most) return "";
  return concat(" is more than ", kMostForACore, " threads for ",
                cores == 1 ? "the one core" : concat("each of the ", cores, " cores"),
                " that this process may use, where they wait for each other; use ", cores, ", and at most ", most);
}

}  // namespace espalier
