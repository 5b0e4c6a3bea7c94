// The sets of a finetuning task as samples: a training set epoch by epoch (data/epoch_order.h), a set to evaluate in
// order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/epoch_order.h"
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

class TaskDataset final : public SampleSource {
 public:
  // The tokenizer outlives it.
  TaskDataset(TaskSet set, const TaskSampleOptions& options, const TaskEpochs& epochs,
              const text::Tokenizer& tokenizer);

  const std::string& name() const override { return set_.name; }
  int64_t size() const override { return order_.size(); }
  const std::vector<SampleField>& fields() const override { return fields_; }
  void read(int64_t number, Sample& sample) const override;
  const std::vector<std::string>& source_names() const override { return source_names_; }
  std::string description() const override;
  std::vector<std::string> prefixes() const override { return {}; }
  void probe_ids(int64_t) const override {}  // the run's own tokenizer makes them
  bool has_labels() const override { return set_.has_labels; }
  OrderFingerprint fingerprint(const std::string& reading) const override;

 private:
  TaskSet set_;
  TaskSampleOptions options_;
  const text::Tokenizer& tokenizer_;
  std::vector<SampleField> fields_;
  std::vector<std::string> source_names_;
  EpochOrder order_;
};

}  // namespace espalier::data
