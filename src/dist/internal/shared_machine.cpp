#include "dist/internal/shared_machine.h"

#include <unistd.h>

#include <stdexcept>
#include <utility>

#include "base/error.h"

namespace espalier::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSpin = std::chrono::microseconds(40);    // about what it costs to fall asleep and to be woken
constexpr auto kSleep = std::chrono::milliseconds(100);  // then look whether the others are still there

// Of a loop that waits: leaves the core's units to its other thread for a moment.
void pause_core() {
#ifdef __aarch64__
  asm volatile("isb");
#else
  __builtin_ia32_pause();
#endif
}

}  // namespace

size_t SharedMachine::bytes_needed(int64_t size) { return static_cast<size_t>(size) * sizeof(Bell); }

SharedMachine::SharedMachine(SharedMemory memory, int64_t rank, int64_t size)
    : memory_(std::move(memory)),
      rank_(rank),
      size_(size),
      bells_(reinterpret_cast<Bell*>(memory_.data())),
      // Where processes share cores, the one that spins keeps the other from coming.
      spins_(size <= ::sysconf(_SC_NPROCESSORS_ONLN)) {
  memory_.claim(rank);
}

void SharedMachine::start(const std::shared_ptr<SharedOperation>& operation) {
  const std::lock_guard lock(mutex_);
  if (is_abandoned_) throw std::runtime_error("an exchange before has failed");
  pending_.push_back(operation);
  advance_all();
}

bool SharedMachine::is_done(const SharedOperation& operation) {
  const std::lock_guard lock(mutex_);
  advance_all();
  return operation.done_;
}

void SharedMachine::wait(const SharedOperation& operation, std::chrono::milliseconds timeout) {
  const Clock::time_point end = Clock::now() + timeout;
  std::unique_lock lock(mutex_);
  while (true) {
    const uint32_t heard = bells_[rank_].heard();
    advance_all();
    if (operation.done_) return;
    lock.unlock();
    const bool rang = listen(heard);
    lock.lock();
    if (rang) continue;
    const std::optional<int64_t> ended = ended_peer(operation);
    // A process that has ended may have done its part before: what it gave is there.
    advance_all();
    if (operation.done_) return;
    std::string trouble;
    if (ended)
      trouble = concat("the process of rank ", *ended, " has ended");
    else if (is_abandoned_)
      trouble = "an exchange before has failed";
    else if (Clock::now() >= end)
      trouble = concat("nothing came within ", timeout.count() / 1000.0, " s");
    if (trouble.empty()) continue;
    lock.unlock();
    abandon();
    throw std::runtime_error(trouble);
  }
}

void SharedMachine::abandon() {
  std::list<std::shared_ptr<SharedOperation>> given_up;  // with their groups, and perhaps this, not under the lock
  const std::lock_guard lock(mutex_);
  is_abandoned_ = true;
  given_up.swap(pending_);
}

void SharedMachine::advance_all() {
  for (auto operation = pending_.begin(); operation != pending_.end();) {
    (*operation)->done_ = (*operation)->advance();
    operation = (*operation)->done_ ? pending_.erase(operation) : std::next(operation);
  }
}

bool SharedMachine::listen(uint32_t heard) {
  Bell& bell = bells_[rank_];
  if (spins_) {
    const Clock::time_point end = Clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) pause_core();
      if (bell.heard() != heard) return true;
    } while (Clock::now() < end);
  }
  bell.sleep(heard, kSleep);
  return bell.heard() != heard;
}

std::optional<int64_t> SharedMachine::ended_peer(const SharedOperation& operation) const {
  for (const int64_t peer : operation.peers_)
    if (peer != rank_ && !memory_.is_claimed_by_another(peer)) return peer;
  return std::nullopt;
}

}  // namespace espalier::dist
