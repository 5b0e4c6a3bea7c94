// Which samples of a data set each data-parallel rank reads: Megatron's two loaders.
//
// Both are functions of the number of samples that the run has consumed; nothing else is remembered, so a run resumes
// by that number.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace espalier::data {

enum class SamplerKind {
  kSequential,  // --dataloader-type single: the data set's own order
  kCyclic,      // --dataloader-type cyclic: every rank reshuffles a part of its own each epoch, without end
};

struct SamplerLayout {
  int64_t num_samples = 0;  // of the data set
  int64_t micro_batch_size = 1;
  int64_t data_parallel_rank = 0;
  int64_t data_parallel_size = 1;
  // Sequential only: after the last sample the first comes again (evaluation); else the end of the data is an error.
  bool starts_again = false;

  int64_t samples_per_micro_batch() const { return micro_batch_size * data_parallel_size; }  // over all ranks
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  // The samples of this rank's micro-batch when all ranks together have consumed `consumed` before it. Throws a
  // UserError when the data end before it, or where `consumed` does not fit the layout.
  virtual std::vector<int64_t> micro_batch(int64_t consumed) = 0;
};

// Throws a UserError when the data set is too small for one micro-batch of every rank.
std::unique_ptr<Sampler> make_sampler(SamplerKind kind, const SamplerLayout& layout);

}  // namespace espalier::data
