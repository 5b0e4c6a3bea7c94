// The order in which a task's examples are read, epoch by epoch, each in an order of its own: that of Megatron's loader
// (one permutation of torch for each epoch), whatever the layout. What an epoch leaves over of whole steps is not read;
// with keep_last it makes a last, shorter step, which examples that do not count fill up.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace espalier::data {

struct TaskEpochs {
  int64_t num_epochs = 0;         // 0: the examples in order
  int64_t global_batch_size = 1;  // samples of a step
  bool keep_last = false;
};

// Of an epoch of that many examples.
int64_t task_steps_of_epoch(int64_t num_examples, const TaskEpochs& epochs);

// Any number of threads may ask.
class EpochOrder {
 public:
  EpochOrder(int64_t num_examples, int64_t seed, const TaskEpochs& epochs);

  int64_t size() const { return size_; }  // samples of all epochs
  struct Place {
    size_t example = 0;
    bool counts = true;  // false: it only fills up the last step of an epoch
  };
  Place at(int64_t sample) const;  // from 0 to size() - 1

  const TaskEpochs& epochs() const { return epochs_; }
  // ", 3 epochs; each leaves out 7 (--keep-last reads them)"; empty where there are none.
  std::string description() const;

 private:
  int64_t num_examples_, seed_, samples_of_epoch_, size_;
  TaskEpochs epochs_;
  mutable std::mutex lock_;  // of the permutation
  mutable int64_t permuted_epoch_ = -1;
  mutable std::vector<int64_t> permutation_;
};

}  // namespace espalier::data
