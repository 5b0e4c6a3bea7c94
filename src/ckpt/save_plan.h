// What this rank reads, gives, is given and writes in a save. Decided once for a layout: only the bytes are new in
// each save.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/local_tensor.h"
#include "store/step_writer.h"

namespace espalier::ckpt {

// Bytes of one of this rank's tensors.
struct LocalBytes {
  size_t tensor = 0;  // number in the rank's own list
  int64_t begin = 0, count = 0;
};
// Bytes of the buffer, for what this rank writes and cannot read where it is.
struct BufferBytes {
  int64_t begin = 0, count = 0;
};
struct OwnCopy {
  LocalBytes from;
  int64_t to = 0;  // in the buffer
};
// Where bytes of a block come from.
struct BlockPiece {
  int64_t begin = 0, bytes = 0;  // in the block
  std::optional<size_t> tensor;  // of the rank's own list; none: the buffer
  int64_t from = 0;              // byte of that
};
struct BlockToWrite {
  size_t tensor = 0;  // number in `tensors`
  int64_t offset = 0, bytes = 0;
  std::vector<BlockPiece> pieces;  // in order, without gaps
};

// Whether what this rank holds and writes is read where it is, or copied into the buffer, as from a device.
enum class OwnBytes { kInPlace, kInBuffer };

struct SavePlan {
  std::string own_parts;  // what this rank held when the plan was made
  OwnBytes own_bytes = OwnBytes::kInPlace;
  std::vector<store::TensorFacts> tensors;  // of the whole checkpoint, the same on all ranks
  std::vector<BlockToWrite> blocks;         // that this rank writes
  int64_t buffer_bytes = 0;
  std::vector<OwnCopy> own;  // what of the buffer this rank holds itself
  // What it gives to and is given by each other rank, in the order in which it is sent.
  std::map<int64_t, std::vector<LocalBytes>> gives;
  std::map<int64_t, std::vector<BufferBytes>> takes;

  int64_t checkpoint_bytes() const;  // of all tensors, whoever writes them
  int64_t written_bytes() const;     // by this rank
  int64_t given_bytes() const;
};

// A rank's tensors without their values, as text: names, files, types, global shapes, extents.
std::string describe_parts(const std::vector<TensorToSave>& tensors);

// `parts`: describe_parts of every rank, in order. Blocks have at most `block_bytes`.
SavePlan make_save_plan(const std::vector<std::string>& parts, int64_t rank, int64_t block_bytes,
                        OwnBytes own_bytes = OwnBytes::kInPlace);

}  // namespace espalier::ckpt
