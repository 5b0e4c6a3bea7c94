// Memory of the launcher in which ranks keep copies of their state: it outlives them, and ends with the launcher.
//
// The launcher makes it once and hands it to every start of its ranks (an inherited descriptor, named in their
// environment); it takes up only what ranks put there:
//   SnapshotMemory memory(num_local_ranks);
//   variables[kSnapshotsVariable] = memory.variable(local_rank);
// A rank finds there what the process before it has left: two slots of its own, and two for a rank of another machine.
//   open_snapshot_memory();                      // first thing in the program
//   SnapshotSlots* const slots = snapshot_slots(SlotsOf::kRank);    // null without a launcher
//   slots->reserve(bytes);
//   uint8_t* const to = slots->begin(slot);      // the copy that was there is gone from here on,
//   ...                                          // a rank that dies in between leaves the other one,
//   slots->finish(slot, head);                   // and here the new one counts
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace espalier::launch {

inline constexpr const char* kSnapshotsVariable = "ESPALIER_SNAPSHOTS";

class SnapshotMemory {
 public:
  explicit SnapshotMemory(int64_t num_ranks);  // UserError where the system refuses it
  ~SnapshotMemory();
  SnapshotMemory(const SnapshotMemory&) = delete;
  SnapshotMemory& operator=(const SnapshotMemory&) = delete;

  std::string variable(int64_t local_rank) const;
  int descriptor() const { return descriptor_; }
  // Whether any rank has left a copy that was finished, also of another's state.
  bool hold_any() const;
  // No copy counts any more. While no rank runs.
  void clear() const;

 private:
  int descriptor_ = -1;
  int64_t num_ranks_ = 0;
};

struct SnapshotHead {
  int64_t step = 0;       // at least 1
  int64_t bytes = 0;      // of the data
  uint64_t identity = 0;  // of what the data are a copy of
  uint64_t checksum = 0;  // of the data: snapshot_checksum
  std::string text = {};  // at most kMostTextBytes
  int slot = -1;          // where it was found
};

// The hash of the hashes of blocks: these can be computed apart, in any order.
inline constexpr int64_t kSnapshotBlockBytes = int64_t{256} << 10;
uint64_t snapshot_checksum(const uint8_t* data, int64_t bytes);

enum class SlotsOf { kRank, kPeer };  // this rank's copies, and those of a rank of another machine

class SnapshotSlots {
 public:
  static constexpr int64_t kMostTextBytes = int64_t{1} << 24;

  // `descriptor` of a SnapshotMemory stays open as long as this lives, and is the caller's.
  SnapshotSlots(int descriptor, int64_t local_rank, SlotsOf whose = SlotsOf::kRank);
  ~SnapshotSlots();
  SnapshotSlots(const SnapshotSlots&) = delete;
  SnapshotSlots& operator=(const SnapshotSlots&) = delete;

  // Whether there is a copy that was finished. Also before reserve().
  bool hold_any() const { return largest_copy().has_value(); }
  // Before anything else. Room for two copies of this many bytes, and for those that exist.
  // UserError where the machine has not enough memory.
  void reserve(int64_t bytes);
  std::vector<SnapshotHead> heads() const;  // of copies that were finished, the newest first
  const uint8_t* data(int slot) const;
  int64_t capacity() const { return bytes_; }  // of a slot
  // Copies of later steps do not count any more. 0: none does.
  void forget_after(int64_t step);

  // The slot that is free, or else holds the older copy; never `kept`.
  int slot_to_write(int kept = -1) const;
  uint8_t* begin(int slot);
  void finish(int slot, const SnapshotHead& head);

 private:
  struct Slot;
  Slot& slot(int number) const;
  std::optional<int64_t> largest_copy() const;  // bytes
  void check_room(int64_t bytes) const;
  void unmap();

  int descriptor_;
  SlotsOf whose_;
  int64_t first_byte_;
  uint8_t* memory_[2] = {};
  int64_t bytes_ = 0;  // of a copy
};

void open_snapshot_memory();
SnapshotSlots* snapshot_slots(SlotsOf whose);

}  // namespace espalier::launch
