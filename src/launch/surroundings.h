// Time, concurrency and signals as the control plane of a launcher (NodeMeeting, RunLoop) meets them.
//
// An interface, so that a test can run the same code on a virtual clock: there a task is a fiber that gives way at
// sleeps, waits and calls of the store (tests/control_plane). Fibers rather than state machines, as the code then
// reads in the order in which things happen, the same in a test and in a run.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace espalier::launch {

// Work beside the caller's. Its end waits for that of the work.
class Task {
 public:
  virtual ~Task() = default;
};

class Surroundings {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Seconds = std::chrono::duration<double>;

  virtual ~Surroundings() = default;
  virtual Time now() = 0;
  virtual double seconds_since_1970() = 0;
  virtual void sleep_for(Seconds time) = 0;
  virtual std::unique_ptr<Task> start(std::function<void()> work) = 0;
  // Of those that a launcher takes (internal/signals.h), SIGCHLD among them; nothing if none came in that time.
  virtual std::optional<int> wait_for_signal(double seconds) = 0;
  virtual int free_port() = 0;

  Time time_in(double seconds) { return now() + std::chrono::duration_cast<Time::duration>(Seconds(seconds)); }
};

}  // namespace espalier::launch
