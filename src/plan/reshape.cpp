#include "plan/reshape.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace espalier::plan {
namespace {

using spec::Extent;

int64_t end_of(const Extent& extent) { return extent.global_begin + extent.count; }
int64_t end_of(const PlannedBlock& block) { return block.begin + block.count; }
int64_t end_of(const StoredRange& range) { return range.begin + range.count; }

std::vector<PlannedBlock> cut_into_blocks(const std::vector<SavedTensor>& tensors, int64_t block_bytes) {
  std::vector<PlannedBlock> blocks;
  for (size_t index = 0; index < tensors.size(); ++index) {
    const SavedTensor& tensor = tensors[index];
    const int64_t longest = block_bytes / tensor.element_bytes;
    for (int64_t begin = 0; begin < tensor.num_elements; begin += longest)
      blocks.push_back({.tensor = static_cast<int64_t>(index),
                        .begin = begin,
                        .count = std::min(longest, tensor.num_elements - begin)});
  }
  return blocks;
}

// The first extent that ends after `position`; extents are ordered and do not overlap.
size_t first_behind(const std::vector<Extent>& extents, int64_t position) {
  const auto found = std::upper_bound(extents.begin(), extents.end(), position,
                                      [](int64_t at, const Extent& extent) { return at < end_of(extent); });
  return static_cast<size_t>(found - extents.begin());
}

int64_t num_held(const std::vector<Extent>& extents, const PlannedBlock& block) {
  int64_t held = 0;
  for (size_t i = first_behind(extents, block.begin); i < extents.size(); ++i) {
    if (extents[i].global_begin >= end_of(block)) break;
    held += std::min(end_of(extents[i]), end_of(block)) - std::max(extents[i].global_begin, block.begin);
  }
  return held;
}

// How many elements of a block some ranks hold.
struct Share {
  std::vector<int64_t> ranks;
  int64_t count = 0;
};

std::vector<std::vector<Share>> shares_of_blocks(const std::vector<SavedTensor>& tensors,
                                                 const std::vector<PlannedBlock>& blocks) {
  std::vector<std::vector<Share>> shares(blocks.size());
  std::vector<Replicas> replicas;
  for (size_t index = 0; index < blocks.size(); ++index) {
    const PlannedBlock& block = blocks[index];
    if (index == 0 || block.tensor != blocks[index - 1].tensor)
      replicas = replicas_of(tensors[static_cast<size_t>(block.tensor)]);
    for (const Replicas& group : replicas)
      if (const int64_t held = num_held(group.extents, block); held > 0)
        shares[index].push_back({.ranks = group.ranks, .count = held});
  }
  return shares;
}

// One group of replicas on the way through a block.
struct Cursor {
  const std::vector<Extent>* extents;
  size_t next;     // first extent that ends after the position
  int64_t source;  // the rank that gives
};

void move_to(Cursor& cursor, int64_t position) {
  while (cursor.next < cursor.extents->size() && end_of((*cursor.extents)[cursor.next]) <= position) ++cursor.next;
}

// The owner's own group, if it has one, comes first.
std::vector<Cursor> cursors_for(const PlannedBlock& block, const std::vector<Replicas>& replicas) {
  const auto turn = static_cast<size_t>(block.tensor + block.begin / block.count);
  std::vector<Cursor> cursors;
  for (const Replicas& group : replicas) {
    const bool own = std::find(group.ranks.begin(), group.ranks.end(), block.owner) != group.ranks.end();
    const Cursor cursor{.extents = &group.extents,
                        .next = first_behind(group.extents, block.begin),
                        .source = own ? block.owner : group.ranks[turn % group.ranks.size()]};
    cursors.insert(own ? cursors.begin() : cursors.end(), cursor);
  }
  return cursors;
}

}  // namespace

ExtentPattern to_pattern(const std::vector<Extent>& extents) {
  ExtentPattern pattern;
  int64_t global = 0, local = 0;
  for (const Extent& extent : extents) {
    ESPALIER_CHECK(extent.local_begin == local && extent.count > 0, "extent at ", extent.local_begin, " of ",
                   extent.count, " elements, expected at ", local);
    const int64_t gap = extent.global_begin - global;
    if (!pattern.empty() && pattern.back().gap == gap && pattern.back().count == extent.count)
      ++pattern.back().repeat;
    else
      pattern.push_back({.gap = gap, .count = extent.count, .repeat = 1});
    global = end_of(extent);
    local += extent.count;
  }
  return pattern;
}

std::vector<Extent> to_extents(const ExtentPattern& pattern) {
  std::vector<Extent> extents;
  int64_t global = 0, local = 0;
  for (const ExtentRun& run : pattern)
    for (int64_t i = 0; i < run.repeat; ++i) {
      extents.push_back({.global_begin = global + run.gap, .local_begin = local, .count = run.count});
      global += run.gap + run.count;
      local += run.count;
    }
  return extents;
}

int64_t num_elements(const ExtentPattern& pattern) {
  int64_t count = 0;
  for (const ExtentRun& run : pattern) count += run.count * run.repeat;
  return count;
}

std::vector<PlannedBlock> plan_save(const std::vector<SavedTensor>& tensors, int64_t num_ranks, int64_t block_bytes) {
  std::vector<PlannedBlock> blocks = cut_into_blocks(tensors, block_bytes);
  assign_owners(tensors, num_ranks, blocks);
  return blocks;
}

void assign_owners(const std::vector<SavedTensor>& tensors, int64_t num_ranks, std::vector<PlannedBlock>& blocks) {
  const std::vector<std::vector<Share>> shares = shares_of_blocks(tensors, blocks);
  const auto bytes_of = [&](size_t block) {
    return blocks[block].count * tensors[static_cast<size_t>(blocks[block].tensor)].element_bytes;
  };
  // Large blocks first: the small ones then even out the loads.
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes_of(a) > bytes_of(b); });

  std::vector<int64_t> load(static_cast<size_t>(num_ranks), 0);
  std::vector<int64_t> missing(static_cast<size_t>(num_ranks));
  for (const size_t index : order) {
    if (shares[index].empty()) continue;
    const int64_t bytes = bytes_of(index);
    std::fill(missing.begin(), missing.end(), bytes);
    for (const Share& share : shares[index])
      for (const int64_t rank : share.ranks)
        missing[static_cast<size_t>(rank)] -= share.count * bytes / blocks[index].count;
    size_t best = 0;
    for (size_t rank = 1; rank < load.size(); ++rank)
      if (load[rank] + missing[rank] < load[best] + missing[best]) best = rank;
    blocks[index].owner = static_cast<int64_t>(best);
    load[best] += bytes;
  }
}

std::vector<int64_t> bytes_by_owner(const std::vector<SavedTensor>& tensors, const std::vector<PlannedBlock>& blocks,
                                    int64_t num_ranks) {
  std::vector<int64_t> bytes(static_cast<size_t>(num_ranks), 0);
  for (const PlannedBlock& block : blocks)
    if (block.owner >= 0)
      bytes[static_cast<size_t>(block.owner)] += block.count * tensors[static_cast<size_t>(block.tensor)].element_bytes;
  return bytes;
}

std::vector<Replicas> replicas_of(const SavedTensor& tensor) {
  std::vector<Replicas> replicas;
  std::vector<const ExtentPattern*> patterns;
  for (const Holder& holder : tensor.holders) {
    if (holder.pattern.empty()) continue;
    const auto same = std::find_if(patterns.begin(), patterns.end(),
                                   [&](const ExtentPattern* pattern) { return *pattern == holder.pattern; });
    if (same != patterns.end()) {
      replicas[static_cast<size_t>(same - patterns.begin())].ranks.push_back(holder.rank);
      continue;
    }
    patterns.push_back(&holder.pattern);
    replicas.push_back({.ranks = {holder.rank}, .extents = to_extents(holder.pattern)});
    std::vector<Extent>& extents = replicas.back().extents;
    std::sort(extents.begin(), extents.end(),
              [](const Extent& a, const Extent& b) { return a.global_begin < b.global_begin; });
    for (size_t i = 0; i < extents.size(); ++i)
      ESPALIER_CHECK(
          extents[i].global_begin >= (i == 0 ? 0 : end_of(extents[i - 1])) && end_of(extents[i]) <= tensor.num_elements,
          tensor.name, ": rank ", holder.rank, " holds ", extents[i].count, " elements at ", extents[i].global_begin,
          " of ", tensor.num_elements);
  }
  return replicas;
}

std::vector<Piece> pieces_of(const PlannedBlock& block, const std::vector<Replicas>& replicas) {
  std::vector<Cursor> cursors = cursors_for(block, replicas);
  std::vector<Piece> pieces;
  for (int64_t position = block.begin; position < end_of(block);) {
    Piece best{.source = -1, .begin = position};
    int64_t limit = end_of(block);
    for (Cursor& cursor : cursors) {
      move_to(cursor, position);
      if (cursor.next == cursor.extents->size()) continue;
      const Extent& extent = (*cursor.extents)[cursor.next];
      const bool own = cursor.source == block.owner;
      if (extent.global_begin > position) {
        if (own) limit = std::min(limit, extent.global_begin);
        continue;
      }
      const int64_t count = std::min(end_of(extent), limit) - position;
      if (count > best.count) best.source = cursor.source, best.count = count;
      if (own) break;
    }
    ESPALIER_CHECK(best.count > 0, "no rank holds element ", position, " of tensor ", block.tensor);
    pieces.push_back(best);
    position += best.count;
  }
  return pieces;
}

std::vector<BlockRead> plan_load(const std::vector<Extent>& extents, const std::vector<StoredRange>& blocks) {
  std::vector<BlockRead> reads(blocks.size());
  for (size_t block = 0; block < blocks.size(); ++block) reads[block].block = block;
  for (const Extent& extent : extents) {
    const auto first =
        std::upper_bound(blocks.begin(), blocks.end(), extent.global_begin,
                         [](int64_t position, const StoredRange& block) { return position < end_of(block); });
    for (auto block = first; block != blocks.end() && block->begin < end_of(extent); ++block) {
      const int64_t begin = std::max(block->begin, extent.global_begin);
      const int64_t end = std::min(end_of(*block), end_of(extent));
      reads[static_cast<size_t>(block - blocks.begin())].copies.push_back(
          {.from = begin - block->begin, .to = extent.local_begin + begin - extent.global_begin, .count = end - begin});
    }
  }
  std::erase_if(reads, [](const BlockRead& read) { return read.copies.empty(); });
  return reads;
}

}  // namespace espalier::plan
