// The pages of the key-value cache: who holds them, and which of them hold the beginning of a text that may come again.
//
// A page is free, held by some number of sequences, or cached: held by none, but found again by the ids that it and the
// pages before it represent. Only full pages are found. Cached pages are given away when no free one is left, the one
// longest unused first; the end of a text goes before its beginning, without which it cannot be found.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

namespace espalier::infer {

// The place of a full page in the index: the text up to its end.
using PrefixId = uint64_t;
// The empty text, of a sequence that is_long or not: their keys differ.
constexpr PrefixId empty_prefix(bool is_long) { return is_long ? 1 : 0; }

struct FoundPrefix {
  std::vector<int32_t> pages;
  PrefixId prefix = 0;  // of the last page
};

class PagePool {
 public:
  PagePool(int64_t num_pages, int64_t page_tokens);

  // The longest cached beginning of `ids` of whole pages after `prefix`; the caller holds the pages afterwards.
  FoundPrefix take_prefix(PrefixId prefix, std::span<const int32_t> ids);
  // Appends `count` pages, now held by the caller, to `pages`, or does nothing where there are not that many.
  bool take(int64_t count, std::vector<int32_t>& pages);
  // Makes a full page that the caller holds findable as `ids` (page_tokens of them) after `prefix`. Where another page
  // represents them already, the caller holds that one from now on, in place of `page`: the two are equal to the bit.
  struct Published {
    int32_t page;
    PrefixId prefix;
  };
  Published publish(PrefixId prefix, std::span<const int32_t> ids, int32_t page);
  // Of one sequence, in order.
  void release(std::span<const int32_t> pages);

  int64_t page_tokens() const { return page_tokens_; }
  int64_t num_pages() const { return static_cast<int64_t>(pages_.size()); }
  int64_t num_cached() const { return static_cast<int64_t>(unused_.size()); }
  int64_t num_available() const { return static_cast<int64_t>(free_.size()) + num_cached(); }
  int64_t num_held() const { return num_pages() - num_available(); }
  int64_t num_evictions() const { return num_evictions_; }

 private:
  // Looked up by all of it, so that two texts of one hash are two.
  struct Key {
    PrefixId before = 0;
    std::vector<int32_t> ids;
    bool operator==(const Key&) const = default;
  };
  struct HashOfKey {
    size_t operator()(const Key& key) const;
  };
  struct Entry {
    int32_t page;
    PrefixId prefix;
  };
  struct Page {
    int64_t num_holders = 0;
    const Key* key = nullptr;  // in the index; null: not findable
    std::list<int32_t>::iterator unused;
  };

  void hold(int32_t page);
  void let_go(int32_t page);
  int32_t evict();

  int64_t page_tokens_;
  std::vector<Page> pages_;
  std::vector<int32_t> free_;
  std::list<int32_t> unused_;  // the cached pages, the longest unused first
  std::unordered_map<Key, Entry, HashOfKey> index_;
  PrefixId last_prefix_ = empty_prefix(true);
  int64_t num_evictions_ = 0;
};

}  // namespace espalier::infer
