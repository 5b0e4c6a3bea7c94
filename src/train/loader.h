// Samples of the run, in order, as micro-batches.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "data/sample_source.h"
#include "data/sampler.h"
#include "dist/group.h"
#include "models/data.h"

namespace espalier::train {

// Place along the data axis.
struct Replica {
  int64_t number = 0, count = 1;
  // As in Megatron, each turn of all replicas takes consecutive micro-batches; else a replica's own follow one another.
  bool takes_turns = true;
};

class Loader {
 public:
  // The source outlives the loader. Ids (SampleField::holds_ids) must be 0 or more and below `vocab_size`; another is a
  // UserError that names the sample, the data set and both numbers. `cyclic`: which sample of the data set is at a
  // place of the run is decided by --dataloader-type cyclic; else it is the sample of that number.
  Loader(const data::SampleSource& source, models::Collate collate, int64_t vocab_size, const Replica& replica,
         const std::optional<data::CyclicLayout>& cyclic = {});

  // This replica's micro-batches of the samples of the run from `first` on. Where replicas take turns, replica d reads
  // first + (micro-batch * replicas + d) * micro_batch_size and those after it, else first + (d * micro-batches +
  // micro-batch) * micro_batch_size and those after it. In sequence, numbers beyond the data set start again at its
  // beginning (evaluation only: a training set holds what was asked for). The numbers in a batch are those of the run,
  // whatever the order; which sample is at a number does not depend on the replicas or the micro-batch size. Several
  // threads may call it, and the next: they take turns.
  std::vector<tensor::Batch> read(int64_t first, int64_t num_micro_batches, int64_t micro_batch_size) const;

  // What place `number` of the run's order is made of; empty where the source does not say.
  std::vector<data::SamplePiece> pieces(int64_t number) const;

  bool takes_turns() const { return replica_.takes_turns; }
  const data::SampleSource& source() const { return source_; }
  // Of the order in which the data set is read: data::Sampler::description().
  std::string order() const { return sampler_.description(); }

 private:
  // The sample at place `number` of the run, which is `sample` of the data set.
  models::SampleRow read_row(int64_t number, int64_t sample) const;

  const data::SampleSource& source_;
  models::Collate collate_;
  int64_t vocab_size_;
  Replica replica_;
  mutable data::Sampler sampler_;  // remembers the permutation of an epoch
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
};

// Hash of sample numbers and ids, independent of how the samples are divided into micro-batches and ranks: the sum
// modulo 2^64 of XXH3(sample number, ids, last label, the row of each of Batch::extra), the first three int64. Of the
// micro-batches of all replicas.
uint64_t sample_hash(const std::vector<tensor::Batch>& micro_batches, const dist::Group& replicas);

}  // namespace espalier::train
