// One text that is being made or scored: its ids, and how much of them the cache holds.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "infer/engine/page_pool.h"

namespace espalier::infer {

// Who goes first where not all can. Unique among the sequences of an engine.
struct Order {
  int64_t minus_priority = 0;
  uint64_t request = 0;                            // numbered in order of arrival
  int64_t number = 0;                              // of the sequence in its request
  auto operator<=>(const Order&) const = default;  // NOLINT(modernize-use-nullptr): it reads `<=> 0`
};

struct Sequence {
  Order order;
  std::vector<int32_t> ids;  // all that are known
  int64_t num_whole = 0;     // this many of the first see each other, and are run at once
  int64_t first_wanted = 0;  // the first id after which logits are still wanted; all after it are as well
  bool is_long = false;      // it may become longer than the model's short_positions
  bool skip_last = false;    // no logits are wanted after the last id, so it is not run

  // The scheduler's part.
  std::vector<int32_t> pages;
  int64_t num_in_cache = 0;   // ids whose keys and values are in the pages
  int64_t num_published = 0;  // pages that are findable
  PrefixId prefix = 0;        // of the last of them

  int64_t end() const { return static_cast<int64_t>(ids.size()) - (skip_last ? 1 : 0); }
  int64_t num_left() const { return end() - num_in_cache; }
};

}  // namespace espalier::infer
