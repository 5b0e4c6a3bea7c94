// The sets of a finetuning task as samples.
//
// A training set goes through its examples epoch by epoch, each in an order of its own: that of Megatron's loader (one
// permutation of torch for each epoch), whatever the layout. What an epoch leaves over of whole steps is not read; with
// keep_last it makes a last, shorter step, which samples that do not count fill up. A set to evaluate is read in order.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/task_sample.h"

namespace espalier::data {

// Several files are one set.
struct TaskSet {
  std::string name;
  std::vector<std::string> paths;
  std::vector<TaskExample> examples;
  bool has_labels = true;
};

struct TaskSampleOptions {
  FinetuningTask task = FinetuningTask::kMnli;
  int64_t sequence_length = 0;
  int64_t seed = 0;
  TaskTokens tokens;
};

struct TaskEpochs {
  int64_t num_epochs = 0;         // 0: the examples in order
  int64_t global_batch_size = 1;  // samples of a step
  bool keep_last = false;
};

// For an epoch of this many examples.
int64_t task_steps_of_epoch(int64_t num_examples, const TaskEpochs& epochs);

class TaskDataset final : public SampleSource {
 public:
  // The tokenizer outlives it.
  TaskDataset(TaskSet set, const TaskSampleOptions& options, const TaskEpochs& epochs,
              const text::Tokenizer& tokenizer);

  const std::string& name() const override { return set_.name; }
  int64_t size() const override { return size_; }
  const std::vector<SampleField>& fields() const override { return fields_; }
  void read(int64_t number, Sample& sample) const override;
  const std::vector<std::string>& source_names() const override { return source_names_; }
  std::string description() const override;
  std::vector<std::string> prefixes() const override { return {}; }
  void probe_ids(int64_t) const override {}  // the run's own tokenizer makes them
  bool has_labels() const override { return set_.has_labels; }
  OrderFingerprint fingerprint(const std::string& reading) const override;

 private:
  int64_t example_at(int64_t epoch, int64_t place) const;

  TaskSet set_;
  TaskSampleOptions options_;
  TaskEpochs epochs_;
  const text::Tokenizer& tokenizer_;
  std::vector<SampleField> fields_;
  std::vector<std::string> source_names_;
  int64_t size_ = 0, samples_of_epoch_ = 0;
  mutable std::mutex lock_;  // of the permutation
  mutable int64_t permuted_epoch_ = -1;
  mutable std::vector<int64_t> permutation_;
};

}  // namespace espalier::data
