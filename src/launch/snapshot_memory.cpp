#include "launch/snapshot_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "launch/machine_memory.h"

namespace espalier::launch {
namespace {

// Each slot has addresses for more than any rank holds; pages exist where something was written.
constexpr int64_t kSlotBytes = int64_t{1} << 40;
constexpr int64_t kHeadBytes = int64_t{1} << 25;
constexpr int64_t kMostBytes = kSlotBytes - kHeadBytes;

std::unique_ptr<SnapshotSlots> own_slots;  // of this process

}  // namespace

struct SnapshotSlots::Slot {
  std::atomic<int64_t> step;  // written last; 0: the copy does not count
  uint64_t identity, checksum;
  int64_t text_bytes;
  char text[kMostTextBytes];
};

SnapshotMemory::SnapshotMemory(int64_t num_ranks) : num_ranks_(num_ranks) {
  descriptor_ = memfd_create("espalier-snapshots", 0);  // stays open in the ranks
  if (descriptor_ >= 0 && ftruncate(descriptor_, num_ranks * 2 * kSlotBytes) == 0) return;
  const int reason = errno;
  if (descriptor_ >= 0) close(descriptor_);
  throw UserError(concat("no memory for copies of the ranks' state: ", std::strerror(reason)));
}

SnapshotMemory::~SnapshotMemory() { close(descriptor_); }

std::string SnapshotMemory::variable(int64_t local_rank) const { return concat(descriptor_, ":", local_rank); }

void SnapshotMemory::clear() const {
  const int64_t none = 0;
  for (int64_t number = 0; number < 2 * num_ranks_; ++number)
    ESPALIER_CHECK(pwrite(descriptor_, &none, sizeof none, number * kSlotBytes) == sizeof none, std::strerror(errno));
}

SnapshotSlots::SnapshotSlots(int descriptor, int64_t local_rank)
    : descriptor_(descriptor), first_byte_(local_rank * 2 * kSlotBytes) {
  static_assert(sizeof(Slot) <= kHeadBytes && std::atomic<int64_t>::is_always_lock_free);
}

namespace {

// A signal that waits to be handled interrupts it.
bool allocate(int descriptor, int64_t begin, int64_t bytes) {
  int result = 0;
  do result = fallocate(descriptor, 0, begin, bytes);
  while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace

SnapshotSlots::~SnapshotSlots() { unmap(); }

void SnapshotSlots::unmap() {
  for (uint8_t*& memory : memory_)
    if (memory != nullptr) munmap(std::exchange(memory, nullptr), static_cast<size_t>(kHeadBytes + bytes_));
}

// Page by page, the kernel would grant memory until it has to kill a process.
void SnapshotSlots::check_room(int64_t bytes) const {
  int64_t missing = 0;
  for (int number = 0; number < 2; ++number) {
    const int64_t first = first_byte_ + number * kSlotBytes + kHeadBytes;
    const int64_t end_of_pages = lseek(descriptor_, first, SEEK_HOLE);
    missing += std::max<int64_t>(0, bytes - std::max<int64_t>(0, end_of_pages - first));
  }
  const MachineMemory machine = machine_memory();
  const char* const ranks = std::getenv("LOCAL_WORLD_SIZE");  // they all ask at once, for about as much
  const int64_t sharers = ranks == nullptr ? 1 : std::max<int64_t>(1, std::atoll(ranks));
  if (missing <= machine.available_bytes / sharers) return;
  throw UserError(concat("two copies of this rank's state need ", format_bytes(static_cast<double>(missing)),
                         " of memory, and this machine has ",
                         format_bytes(static_cast<double>(machine.available_bytes)), " to give (", machine.source,
                         "). Leave out --non-persistent-save-interval."));
}

void SnapshotSlots::reserve(int64_t bytes) {
  ESPALIER_CHECK(bytes >= 0 && bytes <= kMostBytes, bytes);
  unmap();
  check_room(bytes);
  bytes_ = bytes;
  for (int number = 0; number < 2; ++number) {
    const int64_t first = first_byte_ + number * kSlotBytes, data = first + kHeadBytes;
    // What a larger copy has left is given back.
    fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, data + bytes, kMostBytes - bytes);
    void* memory = MAP_FAILED;
    if (bytes == 0 || allocate(descriptor_, data, bytes))
      memory = mmap(nullptr, static_cast<size_t>(kHeadBytes + bytes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_,
                    first);
    if (memory == MAP_FAILED)
      throw UserError(concat("no memory for two copies of this rank's state, of ",
                             format_bytes(static_cast<double>(bytes)), " each: ", std::strerror(errno),
                             ". Leave out --non-persistent-save-interval."));
    memory_[number] = static_cast<uint8_t*>(memory);
  }
}

SnapshotSlots::Slot& SnapshotSlots::slot(int number) const {
  return *std::launder(reinterpret_cast<Slot*>(memory_[number]));
}

uint8_t* SnapshotSlots::data_of(int number) const { return memory_[number] + kHeadBytes; }

std::vector<SnapshotHead> SnapshotSlots::heads() const {
  std::vector<SnapshotHead> heads;
  for (int number = 0; number < 2; ++number) {
    const Slot& slot = this->slot(number);
    const int64_t step = slot.step.load(std::memory_order_acquire);
    if (step == 0) continue;
    const auto text_bytes = static_cast<size_t>(std::clamp<int64_t>(slot.text_bytes, 0, kMostTextBytes));
    heads.push_back({step, slot.identity, slot.checksum, std::string(slot.text, text_bytes)});
  }
  std::sort(heads.begin(), heads.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return heads;
}

const uint8_t* SnapshotSlots::data(int64_t step) const {
  for (int number = 0; number < 2; ++number)
    if (slot(number).step == step) return data_of(number);
  ESPALIER_CHECK(false, "no copy of step ", step);
  return nullptr;
}

void SnapshotSlots::go_on_from(int64_t step) {
  for (int number = 0; number < 2; ++number) {
    Slot& slot = this->slot(number);
    if (slot.step == step)
      next_ = 1 - number;
    else if (slot.step > step || step == 0)
      slot.step = 0;
  }
}

uint8_t* SnapshotSlots::begin() {
  slot(next_).step.store(0, std::memory_order_seq_cst);
  return data_of(next_);
}

void SnapshotSlots::finish(const SnapshotHead& head) {
  ESPALIER_CHECK(head.step > 0 && std::ssize(head.text) <= kMostTextBytes, head.step, ", ", head.text.size());
  Slot& slot = this->slot(next_);
  slot.identity = head.identity, slot.checksum = head.checksum;
  slot.text_bytes = std::ssize(head.text);
  std::memcpy(slot.text, head.text.data(), head.text.size());
  slot.step.store(head.step, std::memory_order_seq_cst);
  next_ = 1 - next_;
}

void open_snapshot_memory() {
  const char* const text = std::getenv(kSnapshotsVariable);
  if (text == nullptr) return;
  int descriptor = -1;
  long rank = -1;
  const bool is_good = std::sscanf(text, "%d:%ld", &descriptor, &rank) == 2 && rank >= 0;
  unsetenv(kSnapshotsVariable);                                         // not for what this process starts
  if (!is_good || fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0) return;  // another program's, or another version's
  own_slots = std::make_unique<SnapshotSlots>(descriptor, rank);
}

SnapshotSlots* snapshot_slots() { return own_slots.get(); }

}  // namespace espalier::launch
