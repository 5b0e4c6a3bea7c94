// Memory of the launcher in which ranks keep copies of their state: it outlives them, and ends with the launcher.
//
// The launcher makes it once and hands it to every start of its ranks (an inherited descriptor, named in their
// environment); it takes up only what ranks put there:
//   SnapshotMemory memory(num_local_ranks);
//   variables[kSnapshotsVariable] = memory.variable(local_rank);
// A rank finds there what the process before it has left, in two slots that it writes in turn:
//   open_snapshot_memory();                      // first thing in the program
//   SnapshotSlots* const slots = snapshot_slots();    // null without a launcher
//   slots->reserve(bytes);
//   uint8_t* const to = slots->begin();          // the older copy is gone from here on,
//   ...                                          // a rank that dies in between leaves the newer one,
//   slots->finish(head);                         // and here the new one counts
#pragma once

#include <cstdint>
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
  // No copy counts any more. While no rank runs.
  void clear() const;

 private:
  int descriptor_ = -1;
  int64_t num_ranks_ = 0;
};

struct SnapshotHead {
  int64_t step = 0;       // at least 1
  uint64_t identity = 0;  // of what the data are a copy of
  uint64_t checksum = 0;  // of the data, as whoever wrote them computes it
  std::string text;       // at most kMostTextBytes
};

class SnapshotSlots {
 public:
  static constexpr int64_t kMostTextBytes = int64_t{1} << 24;

  // `descriptor` of a SnapshotMemory stays open as long as this lives, and is the caller's.
  SnapshotSlots(int descriptor, int64_t local_rank);
  ~SnapshotSlots();
  SnapshotSlots(const SnapshotSlots&) = delete;
  SnapshotSlots& operator=(const SnapshotSlots&) = delete;

  // Before anything else. Room for two copies of this many bytes; copies that exist stay, as far as they fit.
  // UserError where the machine has not enough memory.
  void reserve(int64_t bytes);
  std::vector<SnapshotHead> heads() const;  // of copies that were finished, the newest first
  const uint8_t* data(int64_t step) const;  // of one of these
  // Training continues from the copy of this step: it is now the newest, and later ones do not count. 0: from none.
  void go_on_from(int64_t step);

  uint8_t* begin();
  void finish(const SnapshotHead& head);

 private:
  struct Slot;
  Slot& slot(int number) const;
  uint8_t* data_of(int number) const;
  void check_room(int64_t bytes) const;
  void unmap();

  int descriptor_;
  int64_t first_byte_;
  uint8_t* memory_[2] = {};
  int64_t bytes_ = 0;  // of a copy
  int next_ = 0;       // slot
};

void open_snapshot_memory();
SnapshotSlots* snapshot_slots();

}  // namespace espalier::launch
