// The processes of one machine that exchange through shared memory, and what this one has under way. Without torch.
//
// Nothing runs behind the caller's back: exchanges move on when one is started or waited for, all of this process's
// together, so that two processes that wait for different exchanges do not block each other. The cores are the
// training's, and copying costs the same wherever it is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "dist/internal/shared_memory.h"

namespace espalier::dist {

class SharedOperation {
 public:
  // `peers`: the machine's ranks without which it cannot end.
  explicit SharedOperation(std::vector<int64_t> peers) : peers_(std::move(peers)) {}
  virtual ~SharedOperation() = default;
  SharedOperation(const SharedOperation&) = delete;
  SharedOperation& operator=(const SharedOperation&) = delete;

  // Does what the others' progress permits. True when nothing is left.
  virtual bool advance() = 0;

 private:
  friend class SharedMachine;
  std::vector<int64_t> peers_;
  bool done_ = false;
};

class SharedMachine {
 public:
  static size_t bytes_needed(int64_t size);
  // `memory`: of bytes_needed(size), the same for all `size` processes. `have_parent`: one process has started all of
  // them and outlives them; then Yama, which otherwise lets only ancestors read, is told to let its descendants in.
  SharedMachine(SharedMemory memory, int64_t rank, int64_t size, bool have_parent = false);

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }

  // Runs it as far as it goes.
  void start(const std::shared_ptr<SharedOperation>& operation);
  // Throws std::runtime_error when a peer's process has ended before it did its part or `timeout` has passed. Nothing
  // that was under way is carried on then, nor after any other exception of these three.
  void wait(const SharedOperation& operation, std::chrono::milliseconds timeout);
  bool is_done(const SharedOperation& operation);
  // Leaves what is under way, and says so to those that read this process's memory. It would keep its group, and this:
  // it would not let go of its claim, for which others of the machine wait. They are not woken by it: whoever knows why
  // it leaves is to say so before they say that it has left.
  void abandon();
  // Tells a process that something has changed which it may wait for.
  void ring(int64_t rank);

  // Whether the system lets this process read the memory of all others. They have to be there.
  bool can_read_others() const;
  // All processes can, and are to do so from now on.
  void read_directly() { reads_directly_ = true; }
  bool reads_directly() const { return reads_directly_; }
  // `from`: of the process of `rank`. Throws std::runtime_error if that has ended, or has abandoned what was under way:
  // its memory may have changed while it was read.
  void read(int64_t rank, const char* from, void* to, int64_t bytes) const;

 private:
  struct Place;
  void advance_all();
  // Until the bell rings; not long where nobody rings. False: nobody did.
  bool listen(uint32_t heard);
  template <class Function>
  auto or_abandon(const Function& function);
  std::optional<int64_t> ended_peer(const SharedOperation& operation) const;

  SharedMemory memory_;
  int64_t rank_, size_;
  Place* places_;  // of each rank, in shared memory
  bool spins_, reads_directly_ = false;
  std::mutex mutex_;
  std::list<std::shared_ptr<SharedOperation>> pending_;  // in the order of their start
  bool is_abandoned_ = false;
};

}  // namespace espalier::dist
