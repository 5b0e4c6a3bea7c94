#include "data/sampler.h"

#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "data/torch_random.h"

namespace espalier::data {
namespace {

std::string layout_text(const SamplerLayout& layout) {
  return concat(layout.samples_per_micro_batch(), " (micro-batch ", layout.micro_batch_size, " x ",
                layout.data_parallel_size, " data-parallel ranks)");
}

// Micro-batch m covers consecutive samples; rank r takes the r-th slice. A part of a micro-batch at the end of the
// data is never read.
class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(const SamplerLayout& layout) : layout_(layout) {}

  std::vector<int64_t> micro_batch(int64_t consumed) override {
    ESPALIER_CHECK(consumed >= 0);
    if (!layout_.starts_again && consumed > layout_.num_samples - layout_.samples_per_micro_batch())
      throw UserError(concat("the data end: ", format_count(consumed), " of ", format_count(layout_.num_samples),
                             " samples are consumed and the next micro-batch takes ", layout_text(layout_),
                             ". Ask for more samples with --train-samples or --train-iters."),
                      ExitCode::kBadData);
    std::vector<int64_t> samples(static_cast<size_t>(layout_.micro_batch_size));
    std::iota(samples.begin(), samples.end(), consumed + layout_.data_parallel_rank * layout_.micro_batch_size);
    if (layout_.starts_again)
      for (int64_t& sample : samples) sample %= layout_.num_samples;
    return samples;
  }

 private:
  const SamplerLayout layout_;
};

// The data are cut into one run of whole micro-batches for each rank; the seed of its permutation is the number of
// the epoch alone, whatever --seed says.
class CyclicSampler : public Sampler {
 public:
  explicit CyclicSampler(const SamplerLayout& layout)
      : layout_(layout),
        samples_per_epoch_(layout.num_samples - layout.num_samples % layout.samples_per_micro_batch()) {}

  std::vector<int64_t> micro_batch(int64_t consumed) override {
    ESPALIER_CHECK(consumed >= 0);
    const int64_t epoch = consumed / samples_per_epoch_, in_epoch = consumed % samples_per_epoch_;
    if (in_epoch % layout_.samples_per_micro_batch() != 0)
      throw UserError(concat("--dataloader-type cyclic cannot go on after ", format_count(consumed),
                             " samples: within the epoch these are not whole micro-batches of ", layout_text(layout_),
                             ". Resume with the micro-batch size and data-parallel size that the run had."),
                      ExitCode::kUsage);
    const int64_t own_size = samples_per_epoch_ / layout_.data_parallel_size;
    if (epoch != permuted_epoch_) {
      permutation_ = torch_randperm(own_size, static_cast<uint64_t>(epoch));
      permuted_epoch_ = epoch;
    }
    const int64_t own_begin = layout_.data_parallel_rank * own_size;
    const int64_t offset = in_epoch / layout_.data_parallel_size;
    std::vector<int64_t> samples;
    for (int64_t row = 0; row < layout_.micro_batch_size; ++row)
      samples.push_back(own_begin + permutation_[static_cast<size_t>(offset + row)]);
    return samples;
  }

 private:
  const SamplerLayout layout_;
  const int64_t samples_per_epoch_;  // of all ranks
  int64_t permuted_epoch_ = -1;
  std::vector<int64_t> permutation_;  // of this rank's part
};

}  // namespace

std::unique_ptr<Sampler> make_sampler(SamplerKind kind, const SamplerLayout& layout) {
  ESPALIER_CHECK(layout.micro_batch_size > 0 && layout.data_parallel_rank >= 0 &&
                 layout.data_parallel_rank < layout.data_parallel_size);
  const bool is_endless = kind == SamplerKind::kSequential && layout.starts_again && layout.num_samples > 0;
  if (!is_endless && layout.num_samples < layout.samples_per_micro_batch())
    throw UserError(concat("the data set has ", format_count(layout.num_samples), " samples and one micro-batch takes ",
                           layout_text(layout), ". Give it more documents or use a smaller micro-batch."),
                    ExitCode::kBadData);
  if (kind == SamplerKind::kCyclic) return std::make_unique<CyclicSampler>(layout);
  return std::make_unique<SequentialSampler>(layout);
}

}  // namespace espalier::data
