// Which sample of a data set is at a place of the run: Megatron's two loaders.
//
// Both are functions of the place alone. Neither the micro-batch size nor the number of data-parallel ranks of the run
// moves a sample, so a run resumes by one number, in any layout.
//
// Upstream's cyclic order depends on the layout: each of D data-parallel ranks reshuffles a part of its own, and
// micro-batches of M samples take turns. Here M and D belong to the order (CyclicLayout), not to the run: any layout
// can read the order that Megatron has with M and D. With 1 and 1 the whole data set is one part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::data {

// The layout in which Megatron has the cyclic order that is read.
struct CyclicLayout {
  int64_t micro_batch_size = 1;
  int64_t data_parallel_size = 1;

  int64_t samples_per_turn() const { return micro_batch_size * data_parallel_size; }  // a micro-batch of every rank
};

class Sampler {
 public:
  // --dataloader-type single: the data set's own order; after the last sample the first comes again.
  // Of none, as a validation set of one short document has where nothing is evaluated, none can be read.
  static Sampler sequential(int64_t num_samples);
  // --dataloader-type cyclic: the samples of each part are shuffled every epoch; what is left over of whole turns is
  // not read. Throws a UserError when the data set is too small for one turn.
  static Sampler cyclic(int64_t num_samples, const CyclicLayout& layout);

  // The sample at `place` of the run, 0 or more. One thread at a time: the permutation of an epoch is kept.
  int64_t sample(int64_t place);
  // The other way round: every place below `end` at which that sample is read, rising.
  std::vector<int64_t> places(int64_t sample, int64_t end);
  // All that decides the order but the data: "single", or "cyclic 1 x 1 of 20360 samples".
  std::string description() const;

 private:
  Sampler(int64_t num_samples, bool is_cyclic, const CyclicLayout& layout)
      : num_samples_(num_samples), is_cyclic_(is_cyclic), layout_(layout) {}

  int64_t samples_per_epoch() const { return num_samples_ - num_samples_ % layout_.samples_per_turn(); }
  void permute(int64_t epoch);

  int64_t num_samples_;
  bool is_cyclic_;
  CyclicLayout layout_;
  int64_t permuted_epoch_ = -1;
  std::vector<int64_t> permutation_;  // of one part; the parts of an epoch share it
};

}  // namespace espalier::data
