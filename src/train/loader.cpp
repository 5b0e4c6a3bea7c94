#include "train/loader.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "data/sample_hash.h"

namespace espalier::train {

Loader::Loader(const data::SampleSource& source, models::Collate collate, int64_t vocab_size, const Replica& replica,
               const std::optional<data::CyclicLayout>& cyclic)
    : source_(source),
      collate_(std::move(collate)),
      vocab_size_(vocab_size),
      replica_(replica),
      sampler_(cyclic ? data::Sampler::cyclic(source.size(), *cyclic) : data::Sampler::sequential(source.size())) {}

models::SampleRow Loader::read_row(int64_t number, int64_t sample) const {
  models::SampleRow row{.sample_number = number, .sample = {}};
  source_.read(sample, row.sample);
  for (size_t field = 0; field < source_.fields().size(); ++field) {
    if (!source_.fields()[field].holds_ids || row.sample.arrays[field].empty()) continue;
    const std::vector<int64_t>& ids = row.sample.arrays[field];
    const auto [smallest, largest] = std::minmax_element(ids.begin(), ids.end());
    if (*smallest < 0 || *largest >= vocab_size_)
      throw UserError(
          concat("sample ", number, " of '", source_.source_names()[static_cast<size_t>(row.sample.source)],
                 "' holds token id ", *smallest < 0 ? *smallest : *largest, "; expected 0 to ", vocab_size_ - 1,
                 ", the ids of the vocabulary. The data was made with another tokenizer, or is damaged: run "
                 "'espalier data check', and compare --vocab-file or --tokenizer-name-or-path."),
          ExitCode::kBadData);
  }
  return row;
}

std::vector<data::SamplePiece> Loader::pieces(int64_t number) const {
  const std::lock_guard lock(*mutex_);
  return source_.pieces(sampler_.sample(number));
}

std::vector<tensor::Batch> Loader::read(int64_t first, int64_t num_micro_batches, int64_t micro_batch_size) const {
  const std::lock_guard lock(*mutex_);
  std::vector<tensor::Batch> micro_batches;
  for (int64_t micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch) {
    const int64_t number_in_step = replica_.takes_turns ? micro_batch * replica_.count + replica_.number
                                                        : replica_.number * num_micro_batches + micro_batch;
    const int64_t begin = first + number_in_step * micro_batch_size;
    std::vector<models::SampleRow> rows;
    for (int64_t number = begin; number < begin + micro_batch_size; ++number)
      rows.push_back(read_row(number, sampler_.sample(number)));
    micro_batches.push_back(collate_(rows));
  }
  return micro_batches;
}

uint64_t sample_hash(const std::vector<tensor::Batch>& micro_batches, const dist::Group& replicas) {
  uint64_t sum = 0;
  for (const tensor::Batch& batch : micro_batches) {
    const int64_t b = batch.ids.size(0), s = batch.ids.size(1), num_labels = batch.labels.size(1);
    for (int64_t row = 0; row < b; ++row) {
      Hasher hasher;
      data::hash_sample(hasher, batch.sample_numbers[static_cast<size_t>(row)],
                        {batch.ids.data_ptr<int64_t>() + row * s, static_cast<size_t>(s)},
                        batch.labels.data_ptr<int64_t>()[(row + 1) * num_labels - 1]);
      for (const auto& [name, tensor] : batch.extra) {
        if (tensor.size(0) != b) continue;  // of samples that are several rows: their labels are hashed above
        const size_t bytes = tensor.nbytes() / static_cast<size_t>(b);
        hasher.update(static_cast<const char*>(tensor.const_data_ptr()) + static_cast<size_t>(row) * bytes, bytes);
      }
      sum += hasher.digest();
    }
  }
  if (replicas.size() == 1) return sum;
  const at::Tensor total = at::full({1}, static_cast<int64_t>(sum), at::kLong);
  replicas.all_reduce(total);
  return static_cast<uint64_t>(total.item<int64_t>());
}

}  // namespace espalier::train
