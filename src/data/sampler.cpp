#include "data/sampler.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "data/torch_random.h"

namespace espalier::data {

Sampler Sampler::sequential(int64_t num_samples) {
  ESPALIER_CHECK(num_samples >= 0, num_samples);
  return Sampler(num_samples, false, {});
}

Sampler Sampler::cyclic(int64_t num_samples, const CyclicLayout& layout) {
  ESPALIER_CHECK(layout.micro_batch_size > 0 && layout.data_parallel_size > 0);
  if (num_samples < layout.samples_per_turn())
    throw UserError(
        concat("the data set has ", format_count(num_samples), " samples and --cyclic-layout ", layout.micro_batch_size,
               " ", layout.data_parallel_size, " takes ", format_count(layout.samples_per_turn()),
               " at a time. Give the set more documents, or leave --cyclic-layout out."),
        ExitCode::kBadData);
  return Sampler(num_samples, true, layout);
}

// An epoch is cut into one part for each rank. The seed of the permutation is the number of the epoch alone, whatever
// --seed says, so all parts have the same one.
int64_t Sampler::sample(int64_t place) {
  ESPALIER_CHECK(place >= 0 && num_samples_ > 0, "place ", place, " of ", num_samples_, " samples");
  if (!is_cyclic_) return place % num_samples_;
  const int64_t turn = layout_.samples_per_turn();
  const int64_t samples_of_part = samples_per_epoch() / layout_.data_parallel_size;
  const int64_t epoch = place / samples_per_epoch(), in_epoch = place % samples_per_epoch();
  const int64_t part = in_epoch % turn / layout_.micro_batch_size;
  const int64_t in_part = in_epoch / turn * layout_.micro_batch_size + in_epoch % layout_.micro_batch_size;
  permute(epoch);
  return part * samples_of_part + permutation_[static_cast<size_t>(in_part)];
}

void Sampler::permute(int64_t epoch) {
  if (epoch == permuted_epoch_) return;
  permutation_ = torch_randperm(samples_per_epoch() / layout_.data_parallel_size, static_cast<uint64_t>(epoch));
  permuted_epoch_ = epoch;
}

std::vector<int64_t> Sampler::places(int64_t sample, int64_t end) {
  ESPALIER_CHECK(sample >= 0 && sample < num_samples_, sample, " of ", num_samples_);
  std::vector<int64_t> places;
  if (!is_cyclic_) {
    for (int64_t place = sample; place < end; place += num_samples_) places.push_back(place);
    return places;
  }
  if (sample >= samples_per_epoch()) return places;  // left over of whole turns
  const int64_t samples_of_part = samples_per_epoch() / layout_.data_parallel_size, size = layout_.micro_batch_size;
  const int64_t part = sample / samples_of_part;
  for (int64_t epoch = 0; epoch * samples_per_epoch() < end; ++epoch) {
    permute(epoch);
    const int64_t in_part =
        std::find(permutation_.begin(), permutation_.end(), sample % samples_of_part) - permutation_.begin();
    const int64_t place =
        epoch * samples_per_epoch() + in_part / size * layout_.samples_per_turn() + part * size + in_part % size;
    if (place < end) places.push_back(place);
  }
  return places;
}

std::string Sampler::description() const {
  if (!is_cyclic_) return "single";
  return concat("cyclic ", layout_.micro_batch_size, " x ", layout_.data_parallel_size, " of ", num_samples_,
                " samples");
}

}  // namespace espalier::data
