#include "data/task_dataset.h"

#include "base/format.h"
#include "base/hash.h"

namespace espalier::data {

TaskDataset::TaskDataset(TaskSet set, const TaskSampleOptions& options, const TaskEpochs& epochs,
                         const text::Tokenizer& tokenizer)
    : set_(std::move(set)),
      options_(options),
      tokenizer_(tokenizer),
      fields_(task_fields(options.task, options.sequence_length)),
      source_names_{set_.name},
      order_(static_cast<int64_t>(set_.examples.size()), options.seed, epochs) {}

void TaskDataset::read(int64_t number, Sample& sample) const {
  const EpochOrder::Place place = order_.at(number);
  make_task_sample(options_.task, set_.examples[place.example], tokenizer_, options_.tokens, options_.sequence_length,
                   sample);
  if (!place.counts) sample.arrays[kTaskCounts] = {0};
}

std::string TaskDataset::description() const {
  return concat(" > ", facts_of(options_.task).name, " ", set_.name, ": ",
                format_count(static_cast<int64_t>(set_.examples.size())),
                facts_of(options_.task).num_rows > 1 ? " questions" : " pairs", order_.description());
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
  part.num_samples_asked = order_.size();
  part.num_epochs = order_.epochs().num_epochs;
  part.num_samples = examples;
  part.tokens_hash = texts.digest();
  return {options_.sequence_length,
          options_.seed,
          concat(reading, ", ", facts_of(options_.task).name, " in steps of ", order_.epochs().global_batch_size,
                 order_.epochs().keep_last ? ", with what is left of an epoch" : ""),
          {part}};
}

}  // namespace espalier::data
