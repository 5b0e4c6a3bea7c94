// What is inside token files, for people: a pass over the index.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/token_store.h"

namespace espalier::data {

struct SizeBucket {
  int64_t from = 0, to = 0;  // sizes from <= size <= to, in tokens
  int64_t count = 0;         // of sequences
};

struct SizeSummary {
  int64_t smallest = 0, largest = 0;  // tokens in a sequence; 0 without sequences
  double mean = 0;
  std::vector<SizeBucket> histogram;  // 0, 1, 2..3, 4..7, ...: from the first to the last that is not empty
};

SizeSummary summarize_sizes(const TokenStore& store);

// The id that every one of the first `limit` sequences ends with (the end-of-document id, if preprocess appended it).
std::optional<int64_t> common_last_id(const TokenStore& store, int64_t limit);

}  // namespace espalier::data
