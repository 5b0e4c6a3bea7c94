#include "launch/snapshot_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "launch/machine_memory.h"

namespace espalier::launch {
namespace {

// Each slot has addresses for more than any rank holds; pages exist where something was written.
constexpr int64_t kSlotBytes = int64_t{1} << 40;
constexpr int64_t kHeadBytes = int64_t{1} << 25;
constexpr int64_t kMostBytes = kSlotBytes - kHeadBytes;

constexpr int64_t kSlotsOfRank = 4;

std::unique_ptr<SnapshotSlots> slots_of_rank, slots_of_peer;  // of this process

}  // namespace

struct SnapshotSlots::Slot {
  std::atomic<int64_t> step;  // written last; 0: the copy does not count
  uint64_t identity, checksum;
  int64_t bytes, text_bytes;
  char text[kMostTextBytes];
};

SnapshotMemory::SnapshotMemory(int64_t num_ranks) : num_ranks_(num_ranks) {
  descriptor_ = memfd_create("espalier-snapshots", 0);  // stays open in the ranks
  if (descriptor_ >= 0 && ftruncate(descriptor_, num_ranks * kSlotsOfRank * kSlotBytes) == 0) return;
  const int reason = errno;
  if (descriptor_ >= 0) close(descriptor_);
  throw UserError(concat("no memory for copies of the ranks' state: ", std::strerror(reason)));
}

SnapshotMemory::~SnapshotMemory() { close(descriptor_); }

std::string SnapshotMemory::variable(int64_t local_rank) const { return concat(descriptor_, ":", local_rank); }

void SnapshotMemory::clear() const {
  const int64_t none = 0;
  for (int64_t number = 0; number < kSlotsOfRank * num_ranks_; ++number)
    ESPALIER_CHECK(pwrite(descriptor_, &none, sizeof none, number * kSlotBytes) == sizeof none, std::strerror(errno));
}

bool SnapshotMemory::hold_any() const {
  for (int64_t rank = 0; rank < num_ranks_; ++rank)
    for (const SlotsOf whose : {SlotsOf::kRank, SlotsOf::kPeer})
      if (SnapshotSlots(descriptor_, rank, whose).hold_any()) return true;
  return false;
}

uint64_t snapshot_checksum(const uint8_t* data, int64_t bytes) {
  Hasher of_blocks;
  for (int64_t begin = 0; begin < bytes; begin += kSnapshotBlockBytes) {
    const uint64_t sum = hash64(data + begin, static_cast<size_t>(std::min(kSnapshotBlockBytes, bytes - begin)));
    of_blocks.update(&sum, sizeof sum);
  }
  return of_blocks.digest();
}

SnapshotSlots::SnapshotSlots(int descriptor, int64_t local_rank, SlotsOf whose)
    : descriptor_(descriptor),
      whose_(whose),
      first_byte_((local_rank * kSlotsOfRank + (whose == SlotsOf::kRank ? 0 : 2)) * kSlotBytes) {
  static_assert(sizeof(Slot) <= kHeadBytes && std::atomic<int64_t>::is_always_lock_free);
}

namespace {

std::string copies_of(SlotsOf whose) {
  return whose == SlotsOf::kRank ? "two copies of this rank's state"
                                 : "two copies of the state of a rank of another machine";
}
std::string leave_out(SlotsOf whose) {
  return concat("Leave out ", whose == SlotsOf::kRank ? "--non-persistent-save-interval." : "--replication.");
}

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
  throw UserError(concat(copies_of(whose_), " need ", format_bytes(static_cast<double>(missing)),
                         " of memory, and this machine has ",
                         format_bytes(static_cast<double>(machine.available_bytes)), " to give (", machine.source,
                         "). ", leave_out(whose_)));
}

// Of the copies that are there: of another rank's state, perhaps, that is wanted elsewhere.
std::optional<int64_t> SnapshotSlots::largest_copy() const {
  std::optional<int64_t> largest;
  for (int number = 0; number < 2; ++number) {
    int64_t step = 0, bytes = 0;
    const int64_t begin = first_byte_ + number * kSlotBytes;
    if (pread(descriptor_, &step, sizeof step, begin + static_cast<int64_t>(offsetof(Slot, step))) != sizeof step ||
        pread(descriptor_, &bytes, sizeof bytes, begin + static_cast<int64_t>(offsetof(Slot, bytes))) != sizeof bytes)
      continue;
    if (step > 0) largest = std::max(largest.value_or(0), std::clamp<int64_t>(bytes, 0, kMostBytes));
  }
  return largest;
}

void SnapshotSlots::reserve(int64_t bytes) {
  ESPALIER_CHECK(bytes >= 0 && bytes <= kMostBytes, bytes);
  bytes = std::max(bytes, largest_copy().value_or(0));
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
      throw UserError(concat("no memory for ", copies_of(whose_), ", of ", format_bytes(static_cast<double>(bytes)),
                             " each: ", std::strerror(errno), ". ", leave_out(whose_)));
    memory_[number] = static_cast<uint8_t*>(memory);
  }
}

SnapshotSlots::Slot& SnapshotSlots::slot(int number) const {
  return *std::launder(reinterpret_cast<Slot*>(memory_[number]));
}

std::vector<SnapshotHead> SnapshotSlots::heads() const {
  std::vector<SnapshotHead> heads;
  for (int number = 0; number < 2; ++number) {
    const Slot& slot = this->slot(number);
    const int64_t step = slot.step.load(std::memory_order_acquire);
    if (step == 0 || slot.bytes > bytes_) continue;
    const auto text_bytes = static_cast<size_t>(std::clamp<int64_t>(slot.text_bytes, 0, kMostTextBytes));
    heads.push_back({.step = step,
                     .bytes = slot.bytes,
                     .identity = slot.identity,
                     .checksum = slot.checksum,
                     .text = std::string(slot.text, text_bytes),
                     .slot = number});
  }
  std::sort(heads.begin(), heads.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
  return heads;
}

const uint8_t* SnapshotSlots::data(int slot) const { return memory_[slot] + kHeadBytes; }

void SnapshotSlots::forget_after(int64_t step) {
  for (int number = 0; number < 2; ++number)
    if (Slot& slot = this->slot(number); slot.step > step) slot.step = 0;
}

int SnapshotSlots::slot_to_write(int kept) const {
  if (kept >= 0) return 1 - kept;
  return slot(0).step <= slot(1).step ? 0 : 1;
}

uint8_t* SnapshotSlots::begin(int slot) {
  this->slot(slot).step.store(0, std::memory_order_seq_cst);
  return memory_[slot] + kHeadBytes;
}

void SnapshotSlots::finish(int number, const SnapshotHead& head) {
  ESPALIER_CHECK(head.step > 0 && head.bytes <= bytes_ && std::ssize(head.text) <= kMostTextBytes, head.step, ", ",
                 head.bytes, ", ", head.text.size());
  Slot& slot = this->slot(number);
  slot.identity = head.identity, slot.checksum = head.checksum;
  slot.bytes = head.bytes, slot.text_bytes = std::ssize(head.text);
  std::memcpy(slot.text, head.text.data(), head.text.size());
  slot.step.store(head.step, std::memory_order_seq_cst);
}

void open_snapshot_memory() {
  const char* const text = std::getenv(kSnapshotsVariable);
  if (text == nullptr) return;
  int descriptor = -1;
  long rank = -1;
  const bool is_good = std::sscanf(text, "%d:%ld", &descriptor, &rank) == 2 && rank >= 0;
  unsetenv(kSnapshotsVariable);                                         // not for what this process starts
  if (!is_good || fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0) return;  // another program's, or another version's
  slots_of_rank = std::make_unique<SnapshotSlots>(descriptor, rank, SlotsOf::kRank);
  slots_of_peer = std::make_unique<SnapshotSlots>(descriptor, rank, SlotsOf::kPeer);
}

SnapshotSlots* snapshot_slots(SlotsOf whose) {
  return whose == SlotsOf::kRank ? slots_of_rank.get() : slots_of_peer.get();
}

}  // namespace espalier::launch
