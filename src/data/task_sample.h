// What one example of a finetuning task is to BERT: [CLS] first [SEP] second [SEP], cut and filled up as Megatron does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/sample_source.h"
#include "data/task_examples.h"
#include "text/tokenizer.h"

namespace espalier::data {

struct TaskTokens {
  int32_t cls = 0, sep = 0, pad = 0;
};

struct TaskRow {
  std::vector<int64_t> text, types, padding_mask;  // `length` of each
};

// `length` is 2 or more. The types of padding are PAD's id. A first text that leaves no room takes the second's; the
// last separator is of the second text where one was given, even an empty one.
TaskRow build_task_row(std::span<const int32_t> first, const std::optional<std::span<const int32_t>>& second,
                       int64_t length, const TaskTokens& tokens);

// The fields of a task's samples: "text", "types" and "padding_mask" (rows x length), "label", "uid", and "counts": 1,
// or 0 for what only fills up the last batch of an epoch.
std::vector<SampleField> task_fields(FinetuningTask task, int64_t length);
enum TaskField : size_t { kTaskText, kTaskTypes, kTaskPaddingMask, kTaskLabel, kTaskUid, kTaskCounts };

// The arrays of an example, in the order of task_fields(); it counts.
void make_task_sample(FinetuningTask task, const TaskExample& example, const text::Tokenizer& tokenizer,
                      const TaskTokens& tokens, int64_t length, Sample& sample);

}  // namespace espalier::data
