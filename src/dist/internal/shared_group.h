// A group of processes that exchange through shared memory: collectives in steps, and messages. Without torch.
//
// A collective is a row of steps: step k begins on a rank when all ranks have finished step k - 1. What a step gives to
// the others it writes into this rank's area; a later step reads theirs. Two areas take turns, so that one step may
// take from the last and give into the next. Where the system lets processes read each other's memory (SharedMachine),
// a collective may show some of it instead, for as long as it is under way.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/internal/shared_machine.h"

namespace espalier::dist {

class SharedGroup : public std::enable_shared_from_this<SharedGroup> {
 public:
  static constexpr int64_t kAreaBytes = int64_t{1} << 20;  // together about what a core's cache holds

  static size_t bytes_needed(int64_t size);
  // To be held by a shared_ptr: what is under way keeps it. `members`: the machine's ranks, in the order of the group,
  // of which this process is entry `rank`. `memory`: of bytes_needed(members.size()), the same for all members.
  SharedGroup(std::shared_ptr<SharedMachine> machine, SharedMemory memory, std::vector<int64_t> members, int64_t rank);

  int64_t rank() const { return rank_; }
  int64_t size() const { return static_cast<int64_t>(members_.size()); }
  SharedMachine& machine() const { return *machine_; }

  using Operation = std::shared_ptr<SharedOperation>;
  // Where `rank` puts what the others are to read: kAreaBytes. Of steps that follow one another, the odd ones use one
  // area and the even ones the other.
  char* area(int64_t rank, int64_t turn) const;
  // `step` runs for 0 <= k < num_steps; it lives as long as the operation, which may outlive the caller's interest in
  // it, and must own what it uses. `name` (of up to 47 bytes) and `bytes` must be the same on all ranks: a difference
  // is an error that names both. `shown`: for read_shown() of the others, in each step but the first; what they read in
  // a step nobody writes in it.
  Operation start_steps(const std::string& name, int64_t bytes, int64_t num_steps, std::function<void(int64_t k)> step,
                        const void* shown = nullptr);
  // Of what member `rank` shows in the operation whose step this is, from byte `offset` on. Throws std::runtime_error
  // if its process has ended, or has left what is under way.
  void read_shown(int64_t rank, int64_t offset, void* to, int64_t bytes) const;

  // `values`, which the operation keeps, stay as they are until it is done. `tag` distinguishes messages of the same
  // two ranks; those of one tag arrive in order. A message of up to 16 MiB is under way, and the operation done, as
  // soon as it is started, while fewer than 16 are.
  Operation start_send(std::shared_ptr<const void> values, int64_t bytes, int64_t peer, int32_t tag);
  Operation start_receive(std::shared_ptr<void> values, int64_t bytes, int64_t peer, int32_t tag);

 private:
  class Steps;
  class Send;
  class Receive;
  struct Counter;
  struct Announcement;
  struct Slot;
  struct Layout;

  Slot* slots(int64_t from, int64_t to) const;
  char* slot_data(int64_t from, int64_t to, int64_t slot) const;

  std::shared_ptr<SharedMachine> machine_;
  SharedMemory memory_;
  std::vector<int64_t> members_;
  int64_t rank_;
  Counter* finished_;  // steps, of all ranks together, since the beginning
  Announcement* announcements_;
  int64_t steps_started_ = 0;  // of one rank
  // Of messages to each peer: how many were started, and how many have a slot.
  std::vector<uint64_t> sends_started_, sends_placed_;
  // Messages of each peer and tag so far: both sides count them, so that each receipt finds its own.
  std::map<std::pair<int64_t, int32_t>, uint64_t> sent_, expected_;
};

}  // namespace espalier::dist
