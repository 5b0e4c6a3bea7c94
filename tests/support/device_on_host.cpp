#include "tests/support/device_on_host.h"

#include <utility>

namespace espalier::cuda {
namespace {

// Leaves this stack, whose top goes to *from, for another one that was left in the same way.
__attribute__((naked, noinline)) void switch_stack(void** /*from*/, void* /*to*/) {
  asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}

}  // namespace

FiberBlock& FiberBlock::current() {
  static FiberBlock block;
  return block;
}

void FiberBlock::run(const dim3& size, const std::function<void()>& body) {
  const size_t count = size_t{size.x} * size.y * size.z;
  ESPALIER_CHECK(count % kLanes == 0 && count <= kMostThreads, count, " threads in a block");
  body_ = &body;
  ++blocks_run_;
  for (size_t i = 0; i < count; ++i) begin(i);
  for (size_t live = count; live > 0;) {
    bool ran = false;
    for (size_t i = 0; i < count; ++i) {
      if (fibers_[i].state != State::kReady) continue;
      at_ = i;
      threadIdx = dim3(i % size.x, i / size.x % size.y, i / size.x / size.y);
      KernelAccesses::instance().run_thread(i, fibers_[i].exchanges);
      switch_stack(&scheduler_, fibers_[i].top);
      if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
      live -= fibers_[i].state == State::kEnded;
      ran = true;
    }
    ESPALIER_CHECK(ran, "threads of a block wait for different things");
    release(count);
  }
}

void FiberBlock::block_barrier() {
  const Unrecorded here;
  wait(State::kAtBlock);
}

const FiberBlock::Given& FiberBlock::Exchanged::of(size_t lane) const {
  return block_.fibers_[first_ + lane].given[number_ % 2];
}

FiberBlock::Exchanged FiberBlock::give(const void* value, size_t bytes) {
  Fiber& self = fibers_[at_];
  // Given to two places in turn: a lane that is ahead by one exchange does not overwrite what others still read.
  std::memcpy(self.given[++self.exchanges % 2].data(), value, bytes);
  const Exchanged exchanged(*this, at_ / kLanes * kLanes, self.exchanges);
  wait(State::kAtWarp);
  return exchanged;
}

void FiberBlock::exchange(void* value, size_t bytes, size_t source) {
  const Unrecorded here;
  const Exchanged all = give(value, bytes);
  std::memcpy(value, all.of(source).data(), bytes);
}

void FiberBlock::begin(size_t thread) {
  Fiber& fiber = fibers_[thread];
  fiber.state = State::kReady;
  fiber.exchanges = 0;
  // As switch_stack leaves a stack: six registers, then where to continue; at that point the stack is 8 bytes off 16.
  const auto end = reinterpret_cast<uintptr_t>(stacks_.get() + (thread + 1) * kStackBytes) / 16 * 16;
  auto* const top = reinterpret_cast<void**>(end) - 8;
  std::fill_n(top, 8, nullptr);
  top[6] = reinterpret_cast<void*>(&FiberBlock::run_current);
  fiber.top = top;
}

void FiberBlock::run_current() {
  FiberBlock& block = current();
  try {
    (*block.body_)();
  } catch (...) {
    block.error_ = std::current_exception();
  }
  record_accesses(false);
  Fiber& fiber = block.fibers_[block.at_];
  fiber.state = State::kEnded;
  switch_stack(&fiber.top, block.scheduler_);
}

void FiberBlock::wait(State state) {
  Fiber& fiber = fibers_[at_];
  const size_t self = at_;
  const dim3 index = threadIdx;
  fiber.state = state;
  switch_stack(&fiber.top, scheduler_);
  at_ = self;
  threadIdx = index;
}

// Lets go whom all others of its warp, or of the block, have reached.
void FiberBlock::release(size_t count) {
  for (size_t warp = 0; warp < count; warp += kLanes) release(warp, warp + kLanes, State::kAtWarp);
  release(0, count, State::kAtBlock);
}

void FiberBlock::release(size_t begin, size_t end, State barrier) {
  size_t waiting = 0, ended = 0;
  for (size_t i = begin; i < end; ++i) {
    waiting += fibers_[i].state == barrier;
    ended += fibers_[i].state == State::kEnded;
  }
  if (waiting == 0 || waiting + ended < end - begin) return;
  ESPALIER_CHECK(barrier == State::kAtBlock || ended == 0, ended, " lanes of a warp have ended where ", waiting,
                 " exchange values");
  if (barrier == State::kAtBlock) KernelAccesses::instance().begin_interval();
  for (size_t i = begin; i < end; ++i)
    if (fibers_[i].state == barrier) fibers_[i].state = State::kReady;
}

}  // namespace espalier::cuda
