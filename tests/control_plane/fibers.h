// Cooperative threads on a virtual clock, in one thread: what a simulated cluster runs on.
//
// A fiber runs until it sleeps or waits; time then passes at once to the next thing that happens. The same calls in the
// same order give the same run. A fiber belongs to a process, and ends where it waits when that is killed: Killed is
// thrown there, so that its destructors run.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

namespace espalier::control_plane {

using Nanoseconds = int64_t;
inline constexpr Nanoseconds kSecond = 1'000'000'000;
inline Nanoseconds nanoseconds(double seconds) { return static_cast<Nanoseconds>(seconds * 1e9); }
inline double seconds_of(Nanoseconds time) { return static_cast<double>(time) * 1e-9; }

struct Killed {};

class Fibers;

struct Fiber : std::enable_shared_from_this<Fiber> {
  std::function<void()> work;
  int process = -1;
  uint64_t wait = 0;  // counts its waits: an alarm for an earlier one is void
  bool has_started = false, is_killed = false, has_ended = false;
  ucontext_t context;  // where it begins
  jmp_buf place;       // where it goes on
  char* stack = nullptr;
  void* exceptions[2] = {};  // the C++ runtime's, of this fiber
  std::vector<Fiber*> joiners;
};

class Fibers {
 public:
  Fibers() = default;
  ~Fibers();  // all have ended
  Fibers(const Fibers&) = delete;

  Nanoseconds now() const { return now_; }
  Fiber* current() const { return current_; }

  std::shared_ptr<Fiber> start(int process, std::function<void()> work);
  void at(Nanoseconds time, std::function<void()> what);  // on no fiber
  // Until nothing is left to happen, or that time.
  void run(Nanoseconds until);
  // From no fiber: ends all of the process, the youngest first.
  void kill(int process);

  // Of the current fiber.
  void sleep(Nanoseconds time);
  void wait(Nanoseconds until);  // or wake()
  void wake(Fiber* fiber);
  void join(Fiber* fiber);
  bool is_killed() const { return current_ != nullptr && current_->is_killed; }

 private:
  struct Event {
    Nanoseconds time;
    uint64_t number;  // those of the same time happen in their order
    size_t at;        // of what happens
    bool operator<(const Event& other) const { return time != other.time ? time > other.time : number > other.number; }
  };
  struct Happening {  // apart from the times, which are moved about a lot
    std::shared_ptr<Fiber> fiber;
    uint64_t wait = 0;
    std::function<void()> what;
  };
  void add(Nanoseconds time, Happening happening);
  static void enter(unsigned high, unsigned low);
  void resume(const std::shared_ptr<Fiber>& fiber);
  void give_way();

  Nanoseconds now_ = 0;
  uint64_t num_events_ = 0;
  std::priority_queue<Event> events_;
  std::vector<Happening> happenings_;
  std::vector<size_t> free_;  // places among them
  std::vector<std::shared_ptr<Fiber>> fibers_;
  std::vector<char*> stacks_;  // free ones
  std::shared_ptr<Fiber> running_;
  Fiber* current_ = nullptr;
  jmp_buf loop_;  // where run() goes on
  void* loop_exceptions_[2] = {};
  const void* loop_stack_ = nullptr;  // for AddressSanitizer
  size_t loop_stack_bytes_ = 0;
};

}  // namespace espalier::control_plane
