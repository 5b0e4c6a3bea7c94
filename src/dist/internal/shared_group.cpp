#include "dist/internal/shared_group.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/error.h"

namespace espalier::dist {
namespace {

constexpr int64_t kNumSlots = 16;
constexpr int64_t kSlotBytes = int64_t{16} << 20;
constexpr size_t kPage = 4096;

size_t to_page(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

struct alignas(64) SharedGroup::Counter {
  std::atomic<int64_t> value;
};

// What a rank has started, for the others to compare.
struct alignas(64) SharedGroup::Announcement {
  char name[48];
  int64_t bytes;
  const char* shown;  // in its own memory
};

// A message on its way. The sender takes a free slot and fills it, the receiver empties and frees it; a message longer
// than the slot goes round in it.
struct alignas(64) SharedGroup::Slot {
  std::atomic<uint32_t> used;
  int32_t tag;
  int64_t bytes;
  uint64_t number;  // of the messages with this tag
  std::atomic<int64_t> written, taken;
};

// Offsets of the parts.
struct SharedGroup::Layout {
  explicit Layout(int64_t size)
      : announcements(sizeof(Counter)),
        slots(announcements + static_cast<size_t>(size) * sizeof(Announcement)),
        areas(to_page(slots + static_cast<size_t>(size * size * kNumSlots) * sizeof(Slot))),
        slot_data(areas + static_cast<size_t>(size * 2 * kAreaBytes)),
        end(slot_data + static_cast<size_t>(size * size * kNumSlots * kSlotBytes)) {}
  size_t announcements, slots, areas, slot_data, end;
};

size_t SharedGroup::bytes_needed(int64_t size) { return Layout(size).end; }

SharedGroup::SharedGroup(std::shared_ptr<SharedMachine> machine, SharedMemory memory, std::vector<int64_t> members,
                         int64_t rank)
    : machine_(std::move(machine)),
      memory_(std::move(memory)),
      members_(std::move(members)),
      rank_(rank),
      finished_(reinterpret_cast<Counter*>(memory_.data())),
      announcements_(reinterpret_cast<Announcement*>(memory_.data() + Layout(size()).announcements)),
      sends_started_(members_.size()),
      sends_placed_(members_.size()) {}

char* SharedGroup::area(int64_t rank, int64_t turn) const {
  return memory_.data() + Layout(size()).areas + (rank * 2 + turn % 2) * kAreaBytes;
}

SharedGroup::Slot* SharedGroup::slots(int64_t from, int64_t to) const {
  return reinterpret_cast<Slot*>(memory_.data() + Layout(size()).slots) + (from * size() + to) * kNumSlots;
}

char* SharedGroup::slot_data(int64_t from, int64_t to, int64_t slot) const {
  return memory_.data() + Layout(size()).slot_data + ((from * size() + to) * kNumSlots + slot) * kSlotBytes;
}

class SharedGroup::Steps : public SharedOperation {
 public:
  Steps(SharedGroup& group, const std::string& name, int64_t bytes, int64_t num_steps,
        std::function<void(int64_t)> step, const void* shown)
      : SharedOperation(group.members_),
        group_(group.shared_from_this()),
        name_(name),
        bytes_(bytes),
        first_(std::exchange(group.steps_started_, group.steps_started_ + num_steps)),
        num_steps_(num_steps),
        step_(std::move(step)),
        shown_(static_cast<const char*>(shown)) {
    ESPALIER_CHECK(name.size() < sizeof(Announcement::name), "the name ", name, " of a collective is too long");
  }

  bool advance() override {
    const int64_t size = group_->size();
    while (next_ < num_steps_ && group_->finished_->value.load(std::memory_order_acquire) >= size * (first_ + next_)) {
      if (next_ == 0) announce();
      if (next_ == 1) compare();
      step_(next_);  // which counts once it has run
      ++next_;
      // The last rank wakes the others.
      if (group_->finished_->value.fetch_add(1, std::memory_order_acq_rel) + 1 == size * (first_ + next_))
        for (int64_t other = 0; other < size; ++other)
          if (other != group_->rank_) group_->machine_->ring(group_->members_[static_cast<size_t>(other)]);
    }
    return next_ == num_steps_;
  }

 private:
  void announce() const {
    Announcement& mine = group_->announcements_[group_->rank_];
    std::strncpy(mine.name, name_.c_str(), sizeof mine.name - 1);
    mine.bytes = bytes_;
    mine.shown = shown_;
  }

  void compare() const {
    for (int64_t other = 0; other < group_->size(); ++other) {
      const Announcement& theirs = group_->announcements_[other];
      if (name_ != theirs.name || bytes_ != theirs.bytes)
        throw std::runtime_error(concat("rank ", group_->members_[static_cast<size_t>(other)], " has called ",
                                        theirs.name, ", ", theirs.bytes, " bytes, this rank ", name_, ", ", bytes_));
    }
  }

  std::shared_ptr<SharedGroup> group_;
  std::string name_;
  int64_t bytes_, first_, num_steps_, next_ = 0;
  std::function<void(int64_t)> step_;
  const char* shown_;
};

class SharedGroup::Send : public SharedOperation {
 public:
  Send(SharedGroup& group, std::shared_ptr<const void> values, int64_t bytes, int64_t peer, int32_t tag)
      : SharedOperation({group.members_[static_cast<size_t>(peer)]}),
        group_(group.shared_from_this()),
        values_(std::static_pointer_cast<const char>(std::move(values))),
        bytes_(bytes),
        peer_(peer),
        tag_(tag),
        place_(group.sends_started_[static_cast<size_t>(peer)]++),
        number_(group.sent_[{peer, tag}]++) {}

  bool advance() override {
    if (slot_ == nullptr && !take_slot()) return false;
    int64_t written = slot_->written.load(std::memory_order_relaxed);
    const int64_t before = written;
    while (written < bytes_) {
      const int64_t at = written % kSlotBytes;
      const int64_t room = kSlotBytes - (written - slot_->taken.load(std::memory_order_acquire));
      const int64_t count = std::min({room, kSlotBytes - at, bytes_ - written});
      if (count == 0) break;
      std::memcpy(data_ + at, values_.get() + written, static_cast<size_t>(count));
      slot_->written.store(written += count, std::memory_order_release);
    }
    if (is_new_ || written != before) group_->machine_->ring(group_->members_[static_cast<size_t>(peer_)]);
    is_new_ = false;
    return written == bytes_;
  }

 private:
  // In the order in which they were started, or later messages could take all slots from one that is waited for.
  bool take_slot() {
    uint64_t& placed = group_->sends_placed_[static_cast<size_t>(peer_)];
    if (placed != place_) return false;
    Slot* const slots = group_->slots(group_->rank_, peer_);
    for (int64_t i = 0; i < kNumSlots; ++i) {
      if (slots[i].used.load(std::memory_order_acquire) != 0) continue;
      ++placed;
      slot_ = &slots[i];
      data_ = group_->slot_data(group_->rank_, peer_, i);
      slot_->tag = tag_;
      slot_->bytes = bytes_;
      slot_->number = number_;
      slot_->written.store(0, std::memory_order_relaxed);
      slot_->taken.store(0, std::memory_order_relaxed);
      slot_->used.store(1, std::memory_order_release);
      is_new_ = true;
      return true;
    }
    return false;
  }

  std::shared_ptr<SharedGroup> group_;
  std::shared_ptr<const char> values_;
  int64_t bytes_, peer_;
  int32_t tag_;
  uint64_t place_, number_;
  Slot* slot_ = nullptr;
  char* data_ = nullptr;
  bool is_new_ = false;
};

class SharedGroup::Receive : public SharedOperation {
 public:
  Receive(SharedGroup& group, std::shared_ptr<void> values, int64_t bytes, int64_t peer, int32_t tag)
      : SharedOperation({group.members_[static_cast<size_t>(peer)]}),
        group_(group.shared_from_this()),
        values_(std::static_pointer_cast<char>(std::move(values))),
        bytes_(bytes),
        peer_(peer),
        tag_(tag),
        number_(group.expected_[{peer, tag}]++) {}

  bool advance() override {
    if (slot_ == nullptr && !find_slot()) return false;
    int64_t taken = slot_->taken.load(std::memory_order_relaxed);
    const int64_t before = taken;
    for (int64_t ready; (ready = slot_->written.load(std::memory_order_acquire) - taken) > 0;) {
      const int64_t at = taken % kSlotBytes, count = std::min(ready, kSlotBytes - at);
      std::memcpy(values_.get() + taken, data_ + at, static_cast<size_t>(count));
      slot_->taken.store(taken += count, std::memory_order_release);
    }
    const bool done = taken == bytes_;
    if (done) slot_->used.store(0, std::memory_order_release);
    if (done || taken != before) group_->machine_->ring(group_->members_[static_cast<size_t>(peer_)]);
    return done;
  }

 private:
  bool find_slot() {
    Slot* const slots = group_->slots(peer_, group_->rank_);
    for (int64_t i = 0; i < kNumSlots && slot_ == nullptr; ++i) {
      if (slots[i].used.load(std::memory_order_acquire) == 0) continue;
      if (slots[i].tag != tag_ || slots[i].number != number_) continue;
      slot_ = &slots[i];
      data_ = group_->slot_data(peer_, group_->rank_, i);
    }
    if (slot_ == nullptr) return false;
    if (slot_->bytes != bytes_)
      throw std::runtime_error(concat("rank ", group_->members_[static_cast<size_t>(peer_)], " sends ", slot_->bytes,
                                      " bytes with tag ", tag_, ", this rank expects ", bytes_));
    return true;
  }

  std::shared_ptr<SharedGroup> group_;
  std::shared_ptr<char> values_;
  int64_t bytes_, peer_;
  int32_t tag_;
  uint64_t number_;
  Slot* slot_ = nullptr;
  char* data_ = nullptr;
};

SharedGroup::Operation SharedGroup::start_steps(const std::string& name, int64_t bytes, int64_t num_steps,
                                                std::function<void(int64_t k)> step, const void* shown) {
  auto operation = std::make_shared<Steps>(*this, name, bytes, num_steps, std::move(step), shown);
  machine_->start(operation);
  return operation;
}

void SharedGroup::read_shown(int64_t rank, int64_t offset, void* to, int64_t bytes) const {
  machine_->read(members_[static_cast<size_t>(rank)], announcements_[rank].shown + offset, to, bytes);
}

SharedGroup::Operation SharedGroup::start_send(std::shared_ptr<const void> values, int64_t bytes, int64_t peer,
                                               int32_t tag) {
  auto operation = std::make_shared<Send>(*this, std::move(values), bytes, peer, tag);
  machine_->start(operation);
  return operation;
}

SharedGroup::Operation SharedGroup::start_receive(std::shared_ptr<void> values, int64_t bytes, int64_t peer,
                                                  int32_t tag) {
  auto operation = std::make_shared<Receive>(*this, std::move(values), bytes, peer, tag);
  machine_->start(operation);
  return operation;
}

}  // namespace espalier::dist
