#include "data/task_dataset.h"

#include "base/format.h"
#include "base/hash.h"
#include "data/torch_random.h"

namespace espalier::data {

int64_t task_steps_of_epoch(int64_t num_examples, const TaskEpochs& epochs) {
  const int64_t whole = num_examples / epochs.global_batch_size;
  return whole + (epochs.keep_last && num_examples % epochs.global_batch_size != 0);
}

TaskDataset::TaskDataset(TaskSet set, const TaskSampleOptions& options, const TaskEpochs& epochs,
                         const text::Tokenizer& tokenizer)
    : set_(std::move(set)),
      options_(options),
      epochs_(epochs),
      tokenizer_(tokenizer),
      fields_(task_fields(options.task, options.sequence_length)),
      source_names_{set_.name} {
  const auto examples = static_cast<int64_t>(set_.examples.size());
  samples_of_epoch_ =
      epochs.num_epochs == 0 ? examples : task_steps_of_epoch(examples, epochs) * epochs.global_batch_size;
  size_ = samples_of_epoch_ * std::max<int64_t>(1, epochs.num_epochs);
}

int64_t TaskDataset::example_at(int64_t epoch, int64_t place) const {
  if (epochs_.num_epochs == 0) return place;
  const std::lock_guard guard(lock_);
  if (permuted_epoch_ != epoch) {
    permutation_ = torch_randperm(static_cast<int64_t>(set_.examples.size()),
                                  static_cast<uint64_t>(options_.seed) + static_cast<uint64_t>(epoch));
    permuted_epoch_ = epoch;
  }
  // What fills up the last step begins the order again.
  return permutation_[static_cast<size_t>(place) % permutation_.size()];
}

void TaskDataset::read(int64_t number, Sample& sample) const {
  ESPALIER_CHECK(number >= 0 && number < size_, "sample ", number, " of ", size_);
  const int64_t place = number % samples_of_epoch_;
  const auto example = static_cast<size_t>(example_at(number / samples_of_epoch_, place));
  make_task_sample(options_.task, set_.examples[example], tokenizer_, options_.tokens, options_.sequence_length,
                   sample);
  if (place >= static_cast<int64_t>(set_.examples.size())) sample.arrays[kTaskCounts] = {0};
}

std::string TaskDataset::description() const {
  const auto examples = static_cast<int64_t>(set_.examples.size());
  std::string text = concat(" > ", facts_of(options_.task).name, " ", set_.name, ": ", format_count(examples),
                            facts_of(options_.task).num_rows > 1 ? " questions" : " pairs");
  if (epochs_.num_epochs == 0) return text;
  text += concat(", ", epochs_.num_epochs, epochs_.num_epochs == 1 ? " epoch" : " epochs");
  const int64_t rest = examples % epochs_.global_batch_size;
  if (rest != 0 && !epochs_.keep_last) text += concat("; each leaves out ", rest, " (--keep-last reads them)");
  return text;
}

OrderFingerprint TaskDataset::fingerprint(const std::string& reading) const {
  Hasher texts;
  const auto add = [&](const std::string& text) {
    texts.update(text.data(), text.size());
    texts.update("\n", 1);
  };
  for (const TaskExample& example : set_.examples) {
    for (const std::string& first : example.first) add(first);
    add(*example.second);
    texts.update(&example.label, sizeof example.label);
  }
  const auto examples = static_cast<int64_t>(set_.examples.size());
  OrderOfPart part;
  part.prefix = set_.paths.empty() ? set_.name : set_.paths.front();
  part.documents = {0, examples};
  part.num_samples_asked = size_;
  part.num_epochs = epochs_.num_epochs;
  part.num_samples = examples;
  part.tokens_hash = texts.digest();
  return {options_.sequence_length,
          options_.seed,
          concat(reading, ", ", facts_of(options_.task).name, " in steps of ", epochs_.global_batch_size,
                 epochs_.keep_last ? ", including the rest of an epoch" : ""),
          {part}};
}

}  // namespace espalier::data
