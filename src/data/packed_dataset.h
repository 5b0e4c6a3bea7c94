// Rows of packed input-target pairs, for finetuning on many tasks (Megatron-DeepSpeed's MTF data).
//
// The pairs lie in two data sets, PREFIX_inputs_document and PREFIX_targets_document, as `preprocess --json-keys inputs
// targets --output-prefix PREFIX` makes them: sequence i of one belongs to sequence i of the other.
//
//   const PackedDataset dataset("data/p3", {.range = {0, 0.95}, .sequence_length = 2048, ...});
//   PackedSample sample;
//   dataset.sample(17, sample);
//
// Rules for the model, which upstream's finetune_t0 applies: attention stays inside a segment and is causal, save that
// inputs see all inputs of their segment (with a non-causal decoder); loss_mask() says which labels count.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/packed_index.h"
#include "data/token_store.h"

namespace espalier::data {

// One row of sequence length + 1 tokens: all but the last are the inputs of the model, all but the first its labels.
struct PackedSample {
  std::vector<int64_t> ids;        // the pad id after the last pair
  std::vector<int64_t> segments;   // 1, 2, ... for the pairs of the row; 0 for padding
  std::vector<int64_t> positions;  // inside the segment, from 0; upstream counts through, for relative positions only
  std::vector<uint8_t> is_input;   // 1 for tokens of an input, 0 for targets and padding

  // For each label: 1 if it belongs to a target and the token before it is not the pad id.
  std::vector<uint8_t> loss_mask(int64_t pad_id) const;
};

struct PackedOptions {
  FractionRange range;  // of the pairs
  int64_t sequence_length = 0;
  int64_t num_samples = 0;  // at least this many
  int64_t pad_id = 0;
  uint32_t seed = 1234;
};

// Immutable; any number of threads may read.
class PackedDataset {
 public:
  // Throws a UserError where the two data sets do not belong together.
  PackedDataset(const std::string& prefix, const PackedOptions& options);

  int64_t size() const { return index_.size(); }
  const PackedIndex& index() const { return index_; }
  void sample(int64_t number, PackedSample& sample) const;

 private:
  const TokenStore inputs_, targets_;
  const int64_t row_length_, pad_id_;
  const PackedIndex index_;
};

}  // namespace espalier::data
