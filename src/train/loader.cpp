#include "train/loader.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace espalier::train {

Loader::Loader(const data::GptDataset& dataset, const MaskOptions& masks, int64_t vocab_size, const Replica& replica,
               data::SamplerKind order)
    : dataset_(dataset), masks_(masks), vocab_size_(vocab_size), replica_(replica), order_(order) {}

SampleRow Loader::read_row(int64_t number, int64_t sample) const {
  SampleRow row{.sample_number = number, .source = 0, .ids = std::vector<int64_t>(dataset_.sequence_length() + 1)};
  row.source = static_cast<int32_t>(dataset_.sample(sample, row.ids));
  const auto worst = std::max_element(row.ids.begin(), row.ids.end());
  if (*worst >= vocab_size_)
    throw UserError(
        concat("sample ", number, " of '", dataset_.source_names()[static_cast<size_t>(row.source)],
               "' holds token id ", *worst, ", but the model's vocabulary has ", vocab_size_,
               " rows. The data was made with another tokenizer: check --vocab-file or --tokenizer-name-or-path."),
        ExitCode::kBadData);
  return row;
}

data::Sampler& Loader::sampler(const data::SamplerLayout& layout) const {
  if (!sampler_ || sampler_micro_batch_size_ != layout.micro_batch_size) {
    sampler_ = data::make_sampler(order_, layout);
    sampler_micro_batch_size_ = layout.micro_batch_size;
  }
  return *sampler_;
}

std::vector<tensor::Batch> Loader::read(int64_t first, int64_t num_micro_batches, int64_t micro_batch_size) const {
  const data::SamplerLayout layout{.num_samples = dataset_.size(),
                                   .micro_batch_size = micro_batch_size,
                                   .data_parallel_rank = replica_.number,
                                   .data_parallel_size = replica_.count,
                                   .starts_again = true};
  std::vector<tensor::Batch> micro_batches;
  for (int64_t micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch) {
    const int64_t consumed = first + micro_batch * layout.samples_per_micro_batch();
    std::vector<SampleRow> rows;
    int64_t number = consumed + replica_.number * micro_batch_size;
    for (const int64_t sample : sampler(layout).micro_batch(consumed)) rows.push_back(read_row(number++, sample));
    micro_batches.push_back(make_batch(rows, masks_));
  }
  return micro_batches;
}

uint64_t sample_hash(const std::vector<tensor::Batch>& micro_batches, const dist::Group& replicas) {
  uint64_t sum = 0;
  for (const tensor::Batch& batch : micro_batches) {
    const int64_t b = batch.ids.size(0), s = batch.ids.size(1);
    for (int64_t row = 0; row < b; ++row) {
      Hasher hasher;
      const int64_t number = batch.sample_numbers[static_cast<size_t>(row)];
      hasher.update(&number, sizeof number);
      hasher.update(batch.ids.data_ptr<int64_t>() + row * s, static_cast<size_t>(s) * sizeof(int64_t));
      hasher.update(batch.labels.data_ptr<int64_t>() + row * s + s - 1, sizeof(int64_t));
      sum += hasher.digest();
    }
  }
  if (replicas.size() == 1) return sum;
  const at::Tensor total = at::full({1}, static_cast<int64_t>(sum), at::kLong);
  replicas.all_reduce(total);
  return static_cast<uint64_t>(total.item<int64_t>());
}

}  // namespace espalier::train
