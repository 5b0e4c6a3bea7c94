#include "ckpt/save_plan.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "ckpt/internal/inventory.h"
#include "plan/reshape.h"

namespace espalier::ckpt {
namespace {

// Blocks begin at cache lines in the buffer.
constexpr int64_t kAlignment = 64;

// Local offset of elements of a tensor of which this rank holds `extents`.
class LocalOffsets {
 public:
  explicit LocalOffsets(std::vector<spec::Extent> extents) : extents_(std::move(extents)) {
    std::sort(extents_.begin(), extents_.end(),
              [](const auto& a, const auto& b) { return a.global_begin < b.global_begin; });
  }
  int64_t of(int64_t global) const {
    const auto after = std::upper_bound(extents_.begin(), extents_.end(), global,
                                        [](int64_t at, const auto& extent) { return at < extent.global_begin; });
    ESPALIER_CHECK(after != extents_.begin(), "element ", global);
    const spec::Extent& extent = *std::prev(after);
    return extent.local_begin + global - extent.global_begin;
  }

 private:
  std::vector<spec::Extent> extents_;
};

// A tensor as this rank sees it.
struct OwnView {
  int64_t rank = 0;
  int64_t element_bytes = 0;
  size_t number = 0;     // in the rank's own list, where it holds any of it
  LocalOffsets offsets;  // of what it holds
};

void add_piece(std::vector<BlockPiece>& pieces, const BlockPiece& piece) {
  BlockPiece* const last = pieces.empty() ? nullptr : &pieces.back();
  if (last != nullptr && last->tensor == piece.tensor && last->from + last->bytes == piece.from)
    last->bytes += piece.bytes;
  else
    pieces.push_back(piece);
}

// Adds what this rank has to do for one block to its plan.
void add_block(const plan::PlannedBlock& block, const std::vector<plan::Piece>& pieces, const OwnView& view,
               SavePlan& plan) {
  const bool writes = block.owner == view.rank;
  if (writes)
    plan.blocks.push_back({.tensor = static_cast<size_t>(block.tensor),
                           .offset = block.begin * view.element_bytes,
                           .bytes = block.count * view.element_bytes,
                           .pieces = {}});
  for (const plan::Piece& piece : pieces) {
    const bool holds = piece.source == view.rank;
    if (!holds && !writes) continue;
    const int64_t bytes = piece.count * view.element_bytes;
    LocalBytes held;
    if (holds) held = {view.number, view.offsets.of(piece.begin) * view.element_bytes, bytes};
    if (!writes) {
      plan.gives[block.owner].push_back(held);
      continue;
    }
    BlockPiece written{.begin = (piece.begin - block.begin) * view.element_bytes, .bytes = bytes, .tensor = {}};
    if (holds && plan.own_bytes == OwnBytes::kInPlace) {
      written.tensor = held.tensor, written.from = held.begin;
    } else {
      written.from = plan.buffer_bytes;
      plan.buffer_bytes += bytes;
      if (holds)
        plan.own.push_back({held, written.from});
      else
        plan.takes[piece.source].push_back({written.from, bytes});
    }
    add_piece(plan.blocks.back().pieces, written);
  }
  plan.buffer_bytes = (plan.buffer_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

int64_t SavePlan::checkpoint_bytes() const {
  int64_t bytes = 0;
  for (const store::TensorFacts& tensor : tensors) bytes += tensor.num_bytes();
  return bytes;
}

int64_t SavePlan::written_bytes() const {
  int64_t bytes = 0;
  for (const BlockToWrite& block : blocks) bytes += block.bytes;
  return bytes;
}

int64_t SavePlan::given_bytes() const {
  int64_t bytes = 0;
  for (const auto& [rank, pieces] : gives)
    for (const LocalBytes& piece : pieces) bytes += piece.count;
  return bytes;
}

std::string describe_parts(const std::vector<TensorToSave>& tensors) {
  std::string text;
  for (const TensorToSave& tensor : tensors) text += describe_part(tensor.name, tensor.file, tensor.value, tensor.part);
  return text;
}

SavePlan make_save_plan(const std::vector<std::string>& parts, int64_t rank, int64_t block_bytes, OwnBytes own_bytes) {
  SavePlan plan;
  plan.own_bytes = own_bytes;
  plan.own_parts = parts.at(static_cast<size_t>(rank));
  const Inventory inventory(parts, rank);
  plan.tensors = inventory.facts();
  const std::vector<plan::SavedTensor>& saved = inventory.saved();
  const std::vector<plan::PlannedBlock> blocks =
      plan::plan_save(saved, static_cast<int64_t>(parts.size()), block_bytes);
  for (size_t first = 0; first < blocks.size();) {
    const auto number = static_cast<size_t>(blocks[first].tensor);
    size_t end = first;
    bool writes = false;
    for (; end < blocks.size() && blocks[end].tensor == blocks[first].tensor; ++end)
      writes |= blocks[end].owner == rank;
    const auto own = inventory.own().find(number);
    if (writes || own != inventory.own().end()) {
      const std::vector<plan::Replicas> replicas = plan::replicas_of(saved[number]);
      std::vector<spec::Extent> extents;
      for (const plan::Holder& holder : saved[number].holders)
        if (holder.rank == rank) extents = plan::to_extents(holder.pattern);
      const OwnView view{.rank = rank,
                         .element_bytes = saved[number].element_bytes,
                         .number = own == inventory.own().end() ? 0 : own->second,
                         .offsets = LocalOffsets(std::move(extents))};
      for (size_t block = first; block < end; ++block)
        add_block(blocks[block], plan::pieces_of(blocks[block], replicas), view, plan);
    }
    first = end;
  }
  return plan;
}

}  // namespace espalier::ckpt
