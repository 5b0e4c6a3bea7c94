// Copies of the state of a job in memory that outlives its processes (launch/snapshot_memory.h), after every step or
// so: ranks that are restarted in the same layout resume from there, not from the last checkpoint on disk.
//
//   Snapshots snapshots(slots, grid.world, tensors);
//   if (const auto step = snapshots.newest()) numbers = snapshots.load(*step, requests);
//   else snapshots.clear();
//   ...
//   snapshots.keep(numbers, tensors);     // after a step
//
// Each rank copies what it holds, at nearly the speed of memory. Collective except for keep(). Between two
// keep() ranks exchange something, so that none is further than one copy ahead of another: then there is a step of
// which all have a whole one, whenever one dies.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ckpt/local_tensor.h"
#include "dist/group.h"
#include "launch/snapshot_memory.h"
#include "store/manifest.h"

namespace espalier::ckpt {

class Snapshots {
 public:
  // `tensors`: what this rank will keep, for their names, types and parts. `slots` outlive this. UserError where there
  // is not enough memory, on all ranks.
  Snapshots(launch::SnapshotSlots& slots, dist::Group group, const std::vector<TensorToSave>& tensors);

  // The newest step of which every rank has a whole copy of these tensors, left by the processes before.
  std::optional<int64_t> newest() const;
  // Fills the requests, which are for the tensors that were kept, in their order. What was kept with them.
  store::TrainingState load(int64_t step, const std::vector<TensorRequest>& requests);
  // Existing copies no longer count: training resumes from elsewhere.
  void clear() { slots_.go_on_from(0); }

  void keep(const store::TrainingState& numbers, const std::vector<TensorToSave>& tensors);
  int64_t bytes() const { return bytes_; }  // of one copy, of this rank

 private:
  struct Piece {  // of a tensor
    size_t tensor;
    int64_t begin, bytes, to;
  };
  // Calls visit(piece) for all of them, in parallel, with their sums in return.
  template <class Visit>
  uint64_t checksum(const Visit& visit) const;

  launch::SnapshotSlots& slots_;
  dist::Group group_;
  uint64_t identity_ = 0;  // of rank, layout and tensors
  int64_t bytes_ = 0;
  std::vector<int64_t> begins_;  // of the tensors, in a copy
  std::vector<Piece> pieces_;
};

}  // namespace espalier::ckpt
