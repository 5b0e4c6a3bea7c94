#include "tests/control_plane/fibers.h"

#include <cxxabi.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace espalier::control_plane {
namespace {

constexpr size_t kStackBytes = 256 << 10;

// A jump changes stacks as swapcontext does, without its two system calls for the mask of signals: half of the time of
// a simulation. Functions of their own, so that no variable lives across a jump.
__attribute__((noinline)) void leave_for_start(jmp_buf& from, const ucontext_t& to) {
  if (_setjmp(from) == 0) setcontext(&to);
}
__attribute__((noinline)) void leave_for(jmp_buf& from, jmp_buf& to) {
  if (_setjmp(from) == 0) _longjmp(to, 1);
}

// The C++ runtime's count of exceptions on their way, which it keeps by thread.
void swap_exceptions(void** saved, void** loaded) {
  void* own = abi::__cxa_get_globals();
  std::memcpy(saved, own, 2 * sizeof(void*));
  std::memcpy(own, loaded, 2 * sizeof(void*));
}

}  // namespace

Fibers::~Fibers() {
  for (char* stack : stacks_) munmap(stack, kStackBytes);
}

std::shared_ptr<Fiber> Fibers::start(int process, std::function<void()> work) {
  auto fiber = std::make_shared<Fiber>();
  fiber->work = std::move(work);
  fiber->process = process;
  fibers_.push_back(fiber);
  add(now_, {fiber, fiber->wait, {}});
  return fiber;
}

void Fibers::at(Nanoseconds time, std::function<void()> what) {
  add(std::max(time, now_), {nullptr, 0, std::move(what)});
}

void Fibers::add(Nanoseconds time, Happening happening) {
  if (free_.empty()) free_.push_back(happenings_.size()), happenings_.emplace_back();
  const size_t at = free_.back();
  free_.pop_back();
  happenings_[at] = std::move(happening);
  events_.push({time, num_events_++, at});
}

void Fibers::run(Nanoseconds until) {
  while (!events_.empty() && events_.top().time <= until) {
    now_ = events_.top().time;
    const size_t at = events_.top().at;
    events_.pop();
    const Happening event = std::exchange(happenings_[at], {});
    free_.push_back(at);
    if (event.what)
      event.what();
    else if (!event.fiber->has_ended && event.fiber->wait == event.wait)
      resume(event.fiber);
  }
}

void Fibers::kill(int process) {
  std::vector<std::shared_ptr<Fiber>> doomed;
  for (const auto& fiber : fibers_)
    if (fiber->process == process && !fiber->has_ended) doomed.push_back(fiber);
  std::reverse(doomed.begin(), doomed.end());
  for (const auto& fiber : doomed) {
    fiber->is_killed = true;
    resume(fiber);
  }
}

void Fibers::sleep(Nanoseconds time) { wait(now_ + time); }

void Fibers::wait(Nanoseconds until) {
  if (current_->is_killed) throw Killed();
  add(until, {running_, current_->wait, {}});
  give_way();
  if (current_->is_killed) throw Killed();
}

void Fibers::wake(Fiber* fiber) { add(now_, {fiber->shared_from_this(), fiber->wait, {}}); }

void Fibers::join(Fiber* fiber) {
  while (!fiber->has_ended) {
    ESPALIER_CHECK(!current_->is_killed, "a killed process waits for a fiber");
    fiber->joiners.push_back(current_);
    give_way();
  }
}

void Fibers::enter(unsigned high, unsigned low) {
  auto* fibers = reinterpret_cast<Fibers*>(static_cast<uintptr_t>(high) << 32 | low);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &fibers->loop_stack_, &fibers->loop_stack_bytes_);
#endif
  Fiber* fiber = fibers->current_;
  try {
    if (!fiber->is_killed) fiber->work();
  } catch (const Killed&) {
  }
  fiber->has_ended = true;
  for (Fiber* joiner : fiber->joiners) fibers->wake(joiner);
  fibers->give_way();
}

void Fibers::resume(const std::shared_ptr<Fiber>& fiber) {
  ESPALIER_CHECK(current_ == nullptr, "a fiber resumes another");
  ++fiber->wait;
  current_ = fiber.get();
  running_ = fiber;
  const bool begins = !std::exchange(fiber->has_started, true);
  if (begins) {
    if (stacks_.empty())
      stacks_.push_back(static_cast<char*>(
          mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)));
    fiber->stack = stacks_.back();
    stacks_.pop_back();
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = kStackBytes;
    fiber->context.uc_link = nullptr;
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&fiber->context, reinterpret_cast<void (*)()>(&Fibers::enter), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
  }
  swap_exceptions(loop_exceptions_, fiber->exceptions);
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, fiber->stack, kStackBytes);
#endif
  if (begins)
    leave_for_start(loop_, fiber->context);
  else
    leave_for(loop_, fiber->place);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  swap_exceptions(fiber->exceptions, loop_exceptions_);
  current_ = nullptr;
  running_.reset();
  if (!fiber->has_ended) return;
  stacks_.push_back(fiber->stack);
  fiber->work = nullptr;
  std::erase(fibers_, fiber);
}

void Fibers::give_way() {
  Fiber* fiber = current_;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(fiber->has_ended ? nullptr : &fake, loop_stack_, loop_stack_bytes_);
#endif
  leave_for(fiber->place, loop_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

}  // namespace espalier::control_plane
