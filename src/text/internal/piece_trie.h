// All pieces of a vocabulary that begin a text, shortest first: a trie whose edges are in one hash table.
//
//   for (PieceTrie::Walk walk = trie.walk(); walk.step(byte);) if (walk.value() >= 0) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace espalier::text::internal {

class PieceTrie {
 public:
  // Room for keys of `num_bytes` in all is taken at once; more is fine.
  explicit PieceTrie(size_t num_bytes = 0);
  // `value` is at least 0; a key that exists already gets the new one.
  void add(std::string_view key, int32_t value);

  class Walk {
   public:
    // Goes down by `byte`; false if no key continues with it.
    bool step(char byte) {
      const uint64_t key = static_cast<uint64_t>(node_) << 8 | static_cast<uint8_t>(byte);
      for (size_t slot = trie_->slot_of(key);; slot = (slot + 1) & trie_->mask_) {
        const Edge& edge = trie_->edges_[slot];
        if (edge.key == key) {
          node_ = edge.node;
          value_ = edge.value;
          return true;
        }
        if (edge.key == kFree) return false;
      }
    }
    int32_t value() const { return value_; }  // of the key that ends here, or -1

   private:
    friend class PieceTrie;
    explicit Walk(const PieceTrie& trie) : trie_(&trie) {}
    const PieceTrie* trie_;
    uint32_t node_ = 0;
    int32_t value_ = -1;
  };
  Walk walk() const { return Walk(*this); }

  // Bytes of the longest key that `text` begins with; 0 if there is none.
  size_t longest(std::string_view text) const;
  // The value of `key`, or -1.
  int32_t find(std::string_view key) const;

 private:
  static constexpr uint64_t kFree = UINT64_MAX;
  struct Edge {
    uint64_t key = kFree;  // node above * 256 + byte
    uint32_t node = 0;
    int32_t value = -1;
  };
  size_t slot_of(uint64_t key) const { return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_); }
  void grow();

  std::vector<Edge> edges_;  // open addressing, at most half full
  size_t mask_ = 0, num_edges_ = 0;
  int shift_ = 0;
};

}  // namespace espalier::text::internal
