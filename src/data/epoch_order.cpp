#include "data/epoch_order.h"

#include <algorithm>

#include "base/error.h"
#include "data/torch_random.h"

namespace espalier::data {

int64_t task_steps_of_epoch(int64_t num_examples, const TaskEpochs& epochs) {
  const int64_t whole = num_examples / epochs.global_batch_size;
  return whole + (epochs.keep_last && num_examples % epochs.global_batch_size != 0);
}

EpochOrder::EpochOrder(int64_t num_examples, int64_t seed, const TaskEpochs& epochs)
    : num_examples_(num_examples),
      seed_(seed),
      samples_of_epoch_(epochs.num_epochs == 0 ? num_examples
                                               : task_steps_of_epoch(num_examples, epochs) * epochs.global_batch_size),
      size_(samples_of_epoch_ * std::max<int64_t>(1, epochs.num_epochs)),
      epochs_(epochs) {}

EpochOrder::Place EpochOrder::at(int64_t sample) const {
  ESPALIER_CHECK(sample >= 0 && sample < size_, "sample ", sample, " of ", size_);
  const int64_t epoch = sample / samples_of_epoch_, place = sample % samples_of_epoch_;
  if (epochs_.num_epochs == 0) return {static_cast<size_t>(place), true};
  const std::lock_guard guard(lock_);
  if (permuted_epoch_ != epoch) {
    permutation_ = torch_randperm(num_examples_, static_cast<uint64_t>(seed_) + static_cast<uint64_t>(epoch));
    permuted_epoch_ = epoch;
  }
  // The last step is filled up from the beginning of the order.
  return {static_cast<size_t>(permutation_[static_cast<size_t>(place) % permutation_.size()]), place < num_examples_};
}

std::string EpochOrder::description() const {
  if (epochs_.num_epochs == 0) return "";
  std::string text = concat(", ", epochs_.num_epochs, epochs_.num_epochs == 1 ? " epoch" : " epochs");
  const int64_t rest = num_examples_ % epochs_.global_batch_size;
  if (rest != 0 && !epochs_.keep_last) text += concat("; each leaves out ", rest, " (--keep-last reads them)");
  return text;
}

}  // namespace espalier::data
