#include "text/internal/piece_trie.h"

#include <algorithm>
#include <bit>

namespace espalier::text::internal {

PieceTrie::PieceTrie(size_t num_bytes) {
  const size_t slots = std::bit_ceil(std::max<size_t>(64, num_bytes));
  edges_.assign(slots, Edge{});
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void PieceTrie::grow() {
  PieceTrie larger(2 * edges_.size());
  for (const Edge& edge : edges_) {
    if (edge.key == kFree) continue;
    size_t slot = larger.slot_of(edge.key);
    while (larger.edges_[slot].key != kFree) slot = (slot + 1) & larger.mask_;
    larger.edges_[slot] = edge;
  }
  edges_ = std::move(larger.edges_);
  mask_ = larger.mask_;
  shift_ = larger.shift_;
}

void PieceTrie::add(std::string_view key, int32_t value) {
  uint32_t node = 0;
  for (size_t i = 0; i < key.size(); ++i) {
    if (2 * (num_edges_ + 1) > edges_.size()) grow();
    const uint64_t edge_key = static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(key[i]);
    size_t slot = slot_of(edge_key);
    while (edges_[slot].key != edge_key && edges_[slot].key != kFree) slot = (slot + 1) & mask_;
    Edge& edge = edges_[slot];
    if (edge.key == kFree) edge = {edge_key, static_cast<uint32_t>(++num_edges_), -1};
    node = edge.node;
    if (i + 1 == key.size()) edge.value = value;
  }
}

size_t PieceTrie::longest(std::string_view text) const {
  size_t longest = 0;
  Walk at = walk();
  for (size_t i = 0; i < text.size() && at.step(text[i]); ++i) {
    if (at.value() >= 0) longest = i + 1;
  }
  return longest;
}

int32_t PieceTrie::find(std::string_view key) const {
  Walk at = walk();
  for (const char byte : key) {
    if (!at.step(byte)) return -1;
  }
  return key.empty() ? -1 : at.value();
}

}  // namespace espalier::text::internal
