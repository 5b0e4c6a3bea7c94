#include "train/loss_targets.h"

#include "base/error.h"

namespace espalier::train {

LossTargets::LossTargets(const std::vector<tensor::Batch>& micro_batches, const dist::Group& replicas) {
  for (const tensor::Batch& batch : micro_batches)
    for (const auto& [term, targets] : batch.targets) {
      Count& count = counts_[term];
      count.targets += targets;
      count.num_micro_batches += targets > 0;
    }
  std::vector<double> numbers;
  for (const auto& [term, count] : counts_) numbers.insert(numbers.end(), {count.targets, count.num_micro_batches});
  if (!numbers.empty()) numbers = replicas.sum(numbers);
  size_t next = 0;
  for (auto& [term, count] : counts_) {
    count.targets = numbers[next++];
    count.num_micro_batches = numbers[next++];
  }
}

const LossTargets::Count& LossTargets::of(const std::string& term) const {
  const auto found = counts_.find(term);
  ESPALIER_CHECK(found != counts_.end(), "the batches do not say what '", term, "' is a mean over");
  return found->second;
}

}  // namespace espalier::train
