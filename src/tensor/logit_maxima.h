// The largest attention logits of a step, by head, which attention layers raise while somebody collects them (QK-clip).
//
// A logit is a scaled product of a query and a key that it sees, before a soft cap and any bias. Micro-batches raise
// the same numbers, and a layer that is computed once more raises nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>

#include "tensor/param.h"

namespace espalier::tensor {

// Of one layer: the rows of its query_key_value are groups of `queries` heads, a key and a value of `head_size` rows.
struct HeadLogits {
  Param* weight = nullptr;
  Param* bias = nullptr;  // null: none
  int64_t queries = 0, head_size = 0;
  at::Tensor largest;  // [query heads of this tensor rank] fp32
};

class LogitMaxima {
 public:
  // Entries stay where they are.
  HeadLogits& add(HeadLogits entry) { return entries_.emplace_back(std::move(entry)); }
  std::deque<HeadLogits>& entries() { return entries_; }

  // Of the layers' forward passes between the two.
  void begin();
  void end() { collecting_ = false; }
  bool collecting() const { return collecting_; }

 private:
  std::deque<HeadLogits> entries_;
  bool collecting_ = false;
};

}  // namespace espalier::tensor
