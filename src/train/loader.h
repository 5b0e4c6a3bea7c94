// Samples of the run, in order, as micro-batches.
#pragma once

#include <cstdint>
#include <vector>

#include "data/gpt_dataset.h"
#include "train/make_batch.h"

namespace espalier::train {

class Loader {
 public:
  // The data set outlives the loader. Ids must be below `vocab_size`; a larger one is a UserError that names the
  // sample, the data set and both numbers.
  Loader(const data::GptDataset& dataset, const MaskOptions& masks, int64_t vocab_size);

  // Samples first .. first + num_micro_batches * micro_batch_size - 1 of the run. Numbers beyond the data set start
  // again at its beginning (evaluation only: a training set holds what was asked for).
  std::vector<tensor::Batch> read(int64_t first, int64_t num_micro_batches, int64_t micro_batch_size) const;

  const data::GptDataset& dataset() const { return dataset_; }

 private:
  SampleRow read_row(int64_t sample_number) const;

  const data::GptDataset& dataset_;
  MaskOptions masks_;
  int64_t vocab_size_;
};

// Hash of sample numbers and ids, independent of how the samples are divided into micro-batches and ranks: the sum
// modulo 2^64 of XXH3(sample number, ids, last label), all int64.
uint64_t sample_hash(const std::vector<tensor::Batch>& micro_batches);

}  // namespace espalier::train
