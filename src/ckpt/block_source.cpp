#include "ckpt/block_source.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/whereabouts.h"

namespace espalier::ckpt {
namespace {

// A share of a parallel copy: large enough to run at memory speed, small enough to divide evenly.
constexpr int64_t kCopyGrain = int64_t{4} << 20;
// What is freed at once; a block that is longer is not divided.
constexpr int64_t kMemoryBytes = int64_t{16} << 20;

struct Copy {
  uint8_t* to;
  const uint8_t* from;
  int64_t bytes;
};

void copy_all(const std::vector<Copy>& copies) {
  at::parallel_for(0, static_cast<int64_t>(copies.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const Copy& copy = copies[static_cast<size_t>(index)];
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
    }
  });
}

// Bytes [begin, begin + bytes) of a block.
template <class Piece>
void take_from(const std::vector<Piece>& pieces, int64_t begin, int64_t bytes, uint8_t* to) {
  auto piece = std::upper_bound(pieces.begin(), pieces.end(), begin,
                                [](int64_t at, const Piece& one) { return at < one.begin; });
  for (--piece; bytes > 0; ++piece) {
    const int64_t count = std::min(bytes, piece->begin + piece->bytes - begin);
    std::memcpy(to, piece->from + (begin - piece->begin), static_cast<size_t>(count));
    begin += count, bytes -= count, to += count;
  }
}

// Calls visit(piece, first byte) for what of the block's pieces is to be copied before the tensors change.
template <class Block, class Visit>
void visit_left(Block& block, const Visit& visit) {
  for (auto& piece : block.pieces)
    if (piece.in_place && piece.begin + piece.bytes > block.taken) visit(piece, std::max(piece.begin, block.taken));
}

}  // namespace

BlockSource::BlockSource(const SavePlan& plan, std::vector<TensorToSave> tensors, const uint8_t* buffer) {
  for (const BlockToWrite& planned : plan.blocks) {
    Block block{.offset = planned.offset, .bytes = planned.bytes, .pieces = {}, .copied = {}};
    for (const BlockPiece& piece : planned.pieces) {
      const auto* const base =
          piece.tensor ? static_cast<const uint8_t*>(tensors[*piece.tensor].value.const_data_ptr()) : buffer;
      block.pieces.push_back({piece.begin, piece.bytes, base + piece.from, piece.tensor.has_value()});
      block.in_place |= piece.tensor.has_value();
    }
    num_in_place_ += block.in_place ? 1 : 0;
    blocks_.emplace(std::pair(planned.tensor, planned.offset), std::move(block));
  }
  if (num_in_place_ > 0) tensors_ = std::move(tensors);
}

BlockSource::Block& BlockSource::block_at(size_t tensor, int64_t offset) {
  const auto after = blocks_.upper_bound({tensor, offset});
  ESPALIER_CHECK(after != blocks_.begin(), "tensor ", tensor);
  Block& block = std::prev(after)->second;
  ESPALIER_CHECK(block.offset + block.taken == offset, "tensor ", tensor, ": byte ", offset, " after ", block.taken,
                 " of the block at ", block.offset);
  return block;
}

void BlockSource::take(size_t tensor, int64_t offset, int64_t bytes, void* to) {
  Block* block = nullptr;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !wants_change_; });
    block = &block_at(tensor, offset);
    ++num_taking_;
  }
  take_from(block->pieces, offset - block->offset, bytes, static_cast<uint8_t*>(to));
  std::vector<TensorToSave> not_needed;  // these two are freed without the mutex
  at::Tensor written;
  const std::lock_guard lock(mutex_);
  --num_taking_;
  block->taken += bytes;
  if (block->taken == block->bytes) {
    written = std::move(block->copied);
    if (std::exchange(block->in_place, false) && --num_in_place_ == 0) not_needed.swap(tensors_);
  }
  changed_.notify_all();
}

void BlockSource::before_change() {
  std::vector<TensorToSave> not_needed;
  std::unique_lock lock(mutex_);
  if (num_in_place_ == 0) return;
  wants_change_ = true;
  changed_.wait(lock, [&] { return num_taking_ == 0; });
  wants_change_ = false;  // the mutex keeps them out
  changed_.notify_all();
  if (!copy_left()) {
    const WaitsFor waits(Waiting::kFiles, "writing", "the checkpoint");
    changed_.wait(lock, [&] { return num_in_place_ == 0; });
  }
  not_needed.swap(tensors_);
}

void BlockSource::end() {
  const std::lock_guard lock(mutex_);
  num_in_place_ = 0;
  blocks_.clear();
  tensors_.clear();
  changed_.notify_all();
}

// For what is left of all blocks.
void BlockSource::get_memory() {
  std::vector<Block*> together;
  int64_t bytes = 0;
  const auto allocate = [&] {
    if (bytes == 0) return;
    const at::Tensor memory = at::empty({bytes}, at::kByte);
    for (Block* const block : together) block->copied = memory;
    together.clear(), bytes = 0;
  };
  for (auto& [place, block] : blocks_) {
    int64_t left = 0;
    visit_left(block, [&](const Piece& piece, int64_t first) { left += piece.begin + piece.bytes - first; });
    if (left == 0) continue;
    if (bytes + left > kMemoryBytes) allocate();
    together.push_back(&block), bytes += left;
  }
  allocate();
}

// Calls visit(piece, first byte, where its copy goes) for what is left of all blocks.
template <class Visit>
void BlockSource::visit_copies(const Visit& visit) {
  const void* memory = nullptr;
  uint8_t* to = nullptr;
  for (auto& [place, block] : blocks_) {
    if (!block.copied.defined()) continue;
    if (block.copied.const_data_ptr() != memory)
      memory = block.copied.const_data_ptr(), to = static_cast<uint8_t*>(block.copied.mutable_data_ptr());
    visit_left(block, [&](Piece& piece, int64_t first) {
      const int64_t bytes = piece.begin + piece.bytes - first;
      visit(piece, first, to);
      to += bytes;
    });
  }
}

// All of it or, without memory, nothing: pieces are read from their copies only once these are there.
bool BlockSource::copy_left() {
  std::vector<Copy> copies;
  try {
    get_memory();
    visit_copies([&](const Piece& piece, int64_t first, uint8_t* to) {
      const uint8_t* const from = piece.from + (first - piece.begin);
      const int64_t bytes = piece.begin + piece.bytes - first;
      for (int64_t done = 0; done < bytes; done += kCopyGrain)
        copies.push_back({to + done, from + done, std::min(kCopyGrain, bytes - done)});
    });
  } catch (const std::exception&) {
    for (auto& [place, block] : blocks_) block.copied.reset();
    return false;
  }
  copy_all(copies);
  visit_copies([](Piece& piece, int64_t first, const uint8_t* to) {
    piece = {.begin = first, .bytes = piece.begin + piece.bytes - first, .from = to, .in_place = false};
  });
  for (auto& [place, block] : blocks_) block.in_place = false;
  num_in_place_ = 0;
  return true;
}

}  // namespace espalier::ckpt
