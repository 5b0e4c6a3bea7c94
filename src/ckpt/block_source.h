// The bytes of a save's blocks, as they were when it began: read where training holds them until training is about to
// change them, and from a copy of what is then not yet written.
//
//   BlockSource source(plan, tensors, buffer);
//   threads that write:  source.take(tensor, offset, bytes, to);  ...  source.end();
//   the training thread: source.before_change();  // then the tensors may change
//
// The copy is a set of tensors that are freed as they are written. Passes have just ended when weights change: their
// memory (tensor/cpu_allocator.h) takes much of it, at the speed of memory; what else it needs is new pages the first
// time only, which take ten times as long. Where there is no memory for it, the change waits until everything is
// written.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "ckpt/save_plan.h"

namespace espalier::ckpt {

class BlockSource {
 public:
  // `buffer`: the plan's, which stays until end(). The tensors are kept alive as long as they are read.
  BlockSource(const SavePlan& plan, std::vector<TensorToSave> tensors, const uint8_t* buffer);

  // A store::MakeBytes: of each block every byte once, from the first to the last.
  void take(size_t tensor, int64_t offset, int64_t bytes, void* to);
  // Returns when none of the tensors is needed any more. By one thread.
  void before_change();
  // No more is taken: all is written, or the write has failed.
  void end();

 private:
  struct Piece {
    int64_t begin = 0, bytes = 0;  // in the block
    const uint8_t* from = nullptr;
    bool in_place = false;  // in a tensor of training's
  };
  struct Block {
    int64_t offset = 0, bytes = 0;
    std::vector<Piece> pieces;
    int64_t taken = 0;
    bool in_place = false;  // some of what is left
    at::Tensor copied;      // what is left of that once it is a copy, perhaps with that of other blocks
  };
  Block& block_at(size_t tensor, int64_t offset);
  void get_memory();
  template <class Visit>
  void visit_copies(const Visit& visit);
  bool copy_left();

  std::map<std::pair<size_t, int64_t>, Block> blocks_;  // by tensor and offset
  std::vector<TensorToSave> tensors_;                   // until nothing of them is left to be taken

  std::mutex mutex_;  // of all above but what a thread takes from, and of:
  std::condition_variable changed_;
  int num_taking_ = 0;         // threads, without the mutex
  bool wants_change_ = false;  // none begins to
  size_t num_in_place_ = 0;    // blocks
};

}  // namespace espalier::ckpt
