// Reading a checkpoint by all ranks of a group: each block is read and checked once, by one rank, which gives the
// others what they want of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "ckpt/internal/inventory.h"
#include "dist/group.h"
#include "plan/reshape.h"
#include "store/step_reader.h"

namespace espalier::ckpt {

// Who reads which block when. In each round every rank reads at most one. The same on all ranks.
class SharedReadPlan {
 public:
  struct Block {
    const store::StoredTensor* tensor = nullptr;
    size_t block = 0;         // of the tensor
    size_t number = 0;        // of the tensor in the inventory
    plan::StoredRange bytes;  // of the tensor
  };

  // `wanted`: what the ranks want, of tensors that the manifest has, in its shapes. Keeps pointers into the manifest.
  SharedReadPlan(const Inventory& wanted, const store::Manifest& manifest, int64_t num_ranks);

  size_t num_rounds() const { return num_rounds_; }
  int64_t longest_block_bytes() const { return longest_block_bytes_; }
  // nullptr when the rank reads nothing in that round.
  const Block* block_of(int64_t rank, size_t round) const;
  // What a rank wants of a block, in bytes, in the order of its own tensor.
  std::vector<plan::BlockCopy> copies_for(const Block& block, int64_t rank) const;
  std::vector<std::string> files_of(int64_t rank) const;

 private:
  std::vector<plan::SavedTensor> wanted_;    // in bytes
  std::vector<std::vector<Block>> by_rank_;  // in the order of rounds
  size_t num_rounds_ = 0;
  int64_t longest_block_bytes_ = 0;
};

// Carries the plan out; `destinations`: where this rank's tensors are, by number in the inventory. Every block that
// this rank has found damaged becomes a problem; the exchange continues anyway. Returns the bytes that this rank
// read. Collective; needs memory for four blocks.
int64_t read_shared(store::StepReader& reader, const SharedReadPlan& plan,
                    const std::map<size_t, uint8_t*>& destinations, const dist::Group& group, Problems& problems);

}  // namespace espalier::ckpt
