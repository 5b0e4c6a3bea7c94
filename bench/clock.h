// The clock of the benchmarks that measure this process's own work.
#pragma once

#include <ATen/Parallel.h>
#include <time.h>

#include <functional>

namespace espalier::bench {

// Seconds. With one thread the thread's CPU time, which other programs do not lengthen; else the wall clock.
inline double now() {
  timespec time;
  clock_gettime(at::get_num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

inline double seconds_of(const std::function<void()>& work) {
  const double start = now();
  work();
  return now() - start;
}

inline double milliseconds_of(const std::function<void()>& work) { return 1e3 * seconds_of(work); }

}  // namespace espalier::bench
