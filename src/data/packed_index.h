// Which pairs of input and target are together in a row, for finetuning on many tasks: Megatron-DeepSpeed's
// DecoderPackedMTFDataset, to the bit.
//
// Epoch after epoch the pairs are shuffled and placed one after another; a row ends before the pair that would not fit
// into it, and continues over the end of an epoch. A pair longer than a row is left out. What is unfinished at the end
// is not a row. A pure function of (sizes, range of pairs, row length, rows asked for, seed).
//
// One difference: upstream takes the pairs 0 to n - 1 for every set, also for one whose range begins later, so that it
// validates on training data. Here they are those of the range; the order is the same, counted from its beginning.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/document_sizes.h"
#include "data/splits.h"

namespace espalier::data {

struct PackedRequest {
  DocumentRange pairs;
  int64_t row_length = 0;  // in tokens: the sequence length + 1
  int64_t num_rows = 0;    // more than this many
  uint32_t seed = 0;
  std::string name;  // for people only
};

class PackedIndex {
 public:
  // Throws a UserError with problem_of().
  static PackedIndex build(const DocumentSizes& inputs, const DocumentSizes& targets, const PackedRequest& request);
  // A pair of the range that lacks its input or its target, or that no pair fits into a row; empty where all is well.
  static std::string problem_of(const DocumentSizes& inputs, const DocumentSizes& targets,
                                const PackedRequest& request);

  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  // The pairs of a row, in order; at least one.
  std::span<const int64_t> pairs(int64_t row) const;
  int64_t num_epochs() const { return num_epochs_; }
  int64_t num_too_long() const { return num_too_long_; }  // pairs of the range that are left out

  // Upstream's two arrays: of each row the first and the end position in the order, and the pairs in the order.
  struct Row {
    int64_t begin = 0, end = 0;
  };
  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<int64_t>& order() const { return order_; }

 private:
  std::vector<Row> rows_;
  std::vector<int64_t> order_;
  int64_t num_epochs_ = 0, num_too_long_ = 0;
};

}  // namespace espalier::data
