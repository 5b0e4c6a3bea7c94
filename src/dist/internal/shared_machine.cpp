#include "dist/internal/shared_machine.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
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

struct SharedMachine::Place {
  Bell bell;
  std::atomic<pid_t> process;
  std::atomic<const char*> address;  // of `process`, where that process has it
  std::atomic<bool> has_left;        // it has abandoned what was under way
};

size_t SharedMachine::bytes_needed(int64_t size) { return static_cast<size_t>(size) * sizeof(Place); }

SharedMachine::SharedMachine(SharedMemory memory, int64_t rank, int64_t size, bool have_parent)
    : memory_(std::move(memory)),
      rank_(rank),
      size_(size),
      places_(reinterpret_cast<Place*>(memory_.data())),
      // Where processes share cores, the one that spins keeps the other from coming.
      spins_(size <= ::sysconf(_SC_NPROCESSORS_ONLN)) {
  memory_.claim(rank);
  if (have_parent) ::prctl(PR_SET_PTRACER, ::getppid(), 0, 0, 0);  // an error where there is no Yama
  places_[rank].address = reinterpret_cast<const char*>(&places_[rank].process);
  places_[rank].process = ::getpid();
}

void SharedMachine::ring(int64_t rank) { places_[rank].bell.ring(); }

bool SharedMachine::can_read_others() const {
  for (int64_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    pid_t found = 0;
    try {
      read(rank, places_[rank].address, &found, sizeof found);
    } catch (const std::runtime_error&) {
      return false;
    }
    if (found != places_[rank].process) return false;
  }
  return true;
}

void SharedMachine::read(int64_t rank, const char* from, void* to, int64_t bytes) const {
  const Place& place = places_[rank];
  for (int64_t done = 0; done < bytes;) {
    const iovec here = {static_cast<char*>(to) + done, static_cast<size_t>(bytes - done)};
    const iovec there = {const_cast<char*>(from) + done, static_cast<size_t>(bytes - done)};
    const ssize_t count = ::process_vm_readv(place.process, &here, 1, &there, 1, 0);
    if (count <= 0) {
      const int reason = errno;
      const bool has_ended = reason == ESRCH || !memory_.is_claimed_by_another(rank);
      throw std::runtime_error(has_ended ? concat("the process of rank ", rank, " has ended")
                                         : concat("cannot read memory of rank ", rank, ": ", std::strerror(reason)));
    }
    done += count;
  }
  // Whoever leaves says so before its memory changes. The number of one that has ended may be another's.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (place.has_left) throw std::runtime_error(concat("rank ", rank, " has left the exchange"));
  if (!memory_.is_claimed_by_another(rank))
    throw std::runtime_error(concat("the process of rank ", rank, " has ended"));
}

// What is left of an operation that has thrown must not run.
template <class Function>
auto SharedMachine::or_abandon(const Function& function) {
  try {
    return function();
  } catch (...) {
    abandon();
    throw;
  }
}

void SharedMachine::start(const std::shared_ptr<SharedOperation>& operation) {
  or_abandon([&] {
    const std::lock_guard lock(mutex_);
    if (is_abandoned_) throw std::runtime_error("an exchange before has failed");
    pending_.push_back(operation);
    advance_all();
  });
}

bool SharedMachine::is_done(const SharedOperation& operation) {
  return or_abandon([&] {
    const std::lock_guard lock(mutex_);
    advance_all();
    return operation.done_;
  });
}

void SharedMachine::wait(const SharedOperation& operation, std::chrono::milliseconds timeout) {
  const Clock::time_point end = Clock::now() + timeout;
  or_abandon([&] {
    std::unique_lock lock(mutex_);
    while (true) {
      const uint32_t heard = places_[rank_].bell.heard();
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
      if (ended) throw std::runtime_error(concat("the process of rank ", *ended, " has ended"));
      if (is_abandoned_) throw std::runtime_error("an exchange before has failed");
      if (Clock::now() >= end) throw std::runtime_error(concat("nothing came within ", timeout.count() / 1000.0, " s"));
    }
  });
}

void SharedMachine::abandon() {
  places_[rank_].has_left = true;
  std::atomic_thread_fence(std::memory_order_seq_cst);
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
  Bell& bell = places_[rank_].bell;
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
