// Copies of the state of a job in memory that outlives its processes (launch/snapshot_memory.h), after every step or
// so: ranks that are restarted resume from there, not from the last checkpoint on disk.
//
//   Snapshots snapshots({.own = slots}, grid.world, tensors);
//   if (const auto step = snapshots.newest()) numbers = snapshots.load(*step, requests);
//   else snapshots.clear();
//   snapshots.replicate();
//   ...
//   snapshots.settle();                   // before a step counts as done
//   snapshots.keep(numbers, tensors);     // after it
//
// Each rank copies what it holds, at nearly the speed of memory. All ranks call each.
// Between two keep() ranks exchange something, so that none is further than one copy ahead of another: then there is a
// step of which all have a whole one, whenever one dies. Where another rank holds the same as the first one, which
// records steps, they also do in keep(): what the first rank does before it is done in a run that resumes from there.
//
// A copy is known by what it is of (names, types and parts of the tensors), not by who made it: a rank on a machine
// that has lost its memory takes that of a replica which holds the same. With replication, a rank that no other machine
// has a replica of also sends its copies to the rank `jump` further on (launch/copy_link.h), in the background. A step
// counts as done once the copy of the one before has arrived everywhere: whichever machine dies, at most one step that
// was done is lost.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/copy_choice.h"
#include "ckpt/local_tensor.h"
#include "dist/group.h"
#include "launch/copy_link.h"
#include "launch/snapshot_memory.h"
#include "store/manifest.h"

namespace espalier::ckpt {

class Snapshots {
 public:
  struct Replication {
    launch::SnapshotSlots& slots;  // for copies of another rank
    // The copies of rank n go to rank n + jump, or the beginning after the last. Unset: the number of ranks of the
    // largest machine. That of rank 0 counts.
    std::optional<int64_t> jump = {};
    bool is_first_start = true;  // of the run: a jump to the same machine is refused; later it is left out
    launch::CopyLink::Options link;
    // A copy that has not arrived is given up when training has waited that long for it: far less than what exchanges
    // between ranks may take, and no longer than a job has when it is told to end.
    double longest_wait_seconds = 30;
    // Is told that copies stop reaching other machines, and that they do again: the event, the step, what there is to
    // say.
    std::function<void(const std::string&, int64_t, const std::string&)> on_change = {};
  };
  struct Options {
    launch::SnapshotSlots& own;
    int64_t machine = 0;  // which of the run's this is
    std::optional<Replication> replication = {};
  };
  // `tensors`: what this rank will keep, for their names, types and parts. The slots outlive this. UserError where
  // there is not enough memory, on all ranks.
  Snapshots(const Options& options, dist::Group group, const std::vector<TensorToSave>& tensors);

  // The newest step of which every rank's copy of these tensors exists somewhere, whole, left by the processes before.
  // Each rank has its own then.
  std::optional<int64_t> newest();
  // Fills the requests, which are for the tensors that were kept, in their order. What was kept with them. `step` is
  // what newest() has found.
  store::TrainingState load(int64_t step, const std::vector<TensorRequest>& requests);
  // Existing copies no longer count: training resumes from elsewhere.
  void clear();
  // Copies go to another machine from now on, the one that was loaded first.
  void replicate();

  // Waits until the copy that was made last has arrived at the other machines, or is given up.
  void settle();
  void keep(const store::TrainingState& numbers, const std::vector<TensorToSave>& tensors);
  int64_t bytes() const { return bytes_; }  // of one copy, of this rank

 private:
  struct Piece {  // of a tensor, within one block of the copy
    size_t tensor;
    int64_t begin, bytes, to, padding;
  };
  struct RankFacts {
    uint64_t identity;
    int64_t bytes, machine, jump;  // 0: none was asked for
  };
  struct Fetched {  // `buffer`: where it is not in a slot yet
    launch::SnapshotHead head = {};
    at::Tensor buffer = {};
    bool is_whole = false;
  };
  int64_t rank() const { return group_.rank(); }
  const RankFacts& facts(int64_t rank) const { return ranks_[static_cast<size_t>(rank)]; }
  bool sends(int64_t rank) const { return sends_[static_cast<size_t>(rank)]; }
  int64_t target(int64_t rank) const { return (rank + jump_) % group_.size(); }
  bool stays_at_home(int64_t rank) const;
  const std::string& address_of_target() const { return ends_[static_cast<size_t>(target(rank()))].address; }
  std::optional<int64_t> source() const;  // whose copies come here
  void divide(const std::vector<TensorToSave>& tensors);
  void plan_replication();
  void choose_jump(int64_t asked);
  launch::SnapshotSlots& slots_of(launch::SlotsOf whose) const;
  launch::SnapshotHead head_of(const HeldCopy& copy) const;
  std::vector<HeldCopy> held_here() const;
  std::vector<HeldCopy> damaged_here(const CopyChoice& choice) const;
  int slot_nobody_wants() const;
  std::vector<HeldCopy> of_all(const std::vector<HeldCopy>& here) const;
  std::vector<HeldCopy> fetch_copies();
  void give(const HeldCopy& copy, int64_t to) const;
  Fetched fetch(const HeldCopy& copy);
  void forget_after(int64_t step);
  void connect();
  void try_again();
  void stop_sending(const std::string& trouble);
  void say_arrived();
  int64_t newest_step() const;
  void send_newest();
  uint64_t fill(uint8_t* copy, const std::vector<TensorToSave>& tensors) const;

  Options options_;
  dist::Group group_;
  std::vector<RankFacts> ranks_;
  bool first_has_twin_ = false;  // another rank holds the same as rank 0
  std::vector<bool> sends_;      // of each rank, whether its copies go to another machine
  int64_t jump_ = 0;
  int64_t bytes_ = 0;
  std::vector<int64_t> begins_;  // of the tensors, in a copy
  std::vector<Piece> pieces_;
  std::vector<size_t> first_pieces_;  // of the blocks, and the number of pieces
  std::optional<CopyChoice> choice_;
  int newest_slot_ = -1, safe_slot_ = -1;  // own: the newest copy, and the newest that has reached its peer
  bool replicates_ = false, said_wait_ = false, said_arrival_ = false;
  std::unique_ptr<launch::CopyLink> link_;   // none while copies stay here after trouble
  std::vector<launch::CopyLink::End> ends_;  // of the ranks' links
  using Time = std::chrono::steady_clock::time_point;
  bool is_under_way_ = false;  // a copy to another machine, of any rank
  Time sent_at_;               // the last copy
  int64_t keeps_to_next_try_ = 0, keeps_between_tries_ = 0;
  struct Arrived {
    int64_t step = 0;
    Time sent_at;
  } arrived_;  // the last that did everywhere
  bool is_resuming_ = false;
};

}  // namespace espalier::ckpt
