// Who writes which part of a checkpoint, who gives which elements to whom for it, and what a rank reads back.
//
// Pure functions: every rank computes the same plan from what all ranks hold.
//   Saving: each tensor is cut into blocks, the same in every layout. plan_save gives each block to one rank to write;
//   pieces_of says which rank gives which elements, so that every element is written once, however many ranks hold it.
//   Loading: plan_load says which blocks a part needs, and where the bytes go. assign_owners gives each block to one
//   rank to read, for itself and the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/shard.h"

namespace espalier::plan {

// Extents written short, as they repeat (the rows of a tensor split by columns): `repeat` times, leave out `gap`
// elements of the global tensor (it may be negative), then take `count`.
struct ExtentRun {
  int64_t gap = 0, count = 0, repeat = 0;
  bool operator==(const ExtentRun&) const = default;
};
using ExtentPattern = std::vector<ExtentRun>;

// `extents` cover the local tensor from its first element to its last, in that order.
ExtentPattern to_pattern(const std::vector<spec::Extent>& extents);
std::vector<spec::Extent> to_extents(const ExtentPattern& pattern);
int64_t num_elements(const ExtentPattern& pattern);

// What a rank holds of one tensor.
struct Holder {
  int64_t rank = 0;
  ExtentPattern pattern;
};

// A tensor of a checkpoint and the ranks that hold parts of it, or want them.
struct SavedTensor {
  std::string name;
  int64_t num_elements = 0, element_bytes = 0;
  std::vector<Holder> holders;  // a rank at most once
};

// Elements [begin, begin + count) of a tensor, and the rank that writes or reads them; -1 where nobody holds any.
struct PlannedBlock {
  int64_t tensor = 0;  // number in the list
  int64_t begin = 0, count = 0;
  int64_t owner = -1;
};

// Blocks of at most `block_bytes`, by tensor and position, with their owners.
std::vector<PlannedBlock> plan_save(const std::vector<SavedTensor>& tensors, int64_t num_ranks, int64_t block_bytes);

// Gives each of `blocks` (by tensor and position) to the rank for which the bytes that are its own so far, and those of
// the block that it does not hold, are fewest: owners differ by few blocks, and most of what they own they hold.
// Ties go to the lowest rank.
void assign_owners(const std::vector<SavedTensor>& tensors, int64_t num_ranks, std::vector<PlannedBlock>& blocks);

// Bytes of the blocks of each rank.
std::vector<int64_t> bytes_by_owner(const std::vector<SavedTensor>& tensors, const std::vector<PlannedBlock>& blocks,
                                    int64_t num_ranks);

// What some ranks hold alike, by position in the global tensor.
struct Replicas {
  std::vector<int64_t> ranks;
  std::vector<spec::Extent> extents;
};
std::vector<Replicas> replicas_of(const SavedTensor& tensor);

// Elements [begin, begin + count) of a tensor, given by rank `source`; all are in one of its extents.
struct Piece {
  int64_t source = 0;
  int64_t begin = 0, count = 0;
  bool operator==(const Piece&) const = default;
};

// The pieces of a block from its first element to its last, without overlap. What the owner holds is its own; the rest
// comes from the ranks that hold it, in turn from block to block. CHECKs that somebody holds every element.
std::vector<Piece> pieces_of(const PlannedBlock& block, const std::vector<Replicas>& replicas);

// Offsets and lengths below are in whatever unit the caller uses.
struct StoredRange {
  int64_t begin = 0, count = 0;
};
struct BlockCopy {
  int64_t from = 0;  // in the block
  int64_t to = 0;    // in the local tensor
  int64_t count = 0;
};
struct BlockRead {
  size_t block = 0;
  std::vector<BlockCopy> copies;
};

// The blocks that overlap `extents`, in order, each once, with copies in the order of the extents. `blocks` follow one
// another without gaps.
std::vector<BlockRead> plan_load(const std::vector<spec::Extent>& extents, const std::vector<StoredRange>& blocks);

}  // namespace espalier::plan
