// The finetuning tasks of Megatron's tasks/main.py, as their files have them: RACE (folders of articles with questions
// and four options each), MNLI and QQP (tables of pairs of sentences).
//
//   Problems problems;
//   const TaskExamples examples = read_task_examples(FinetuningTask::kMnli, "train.tsv", problems);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace espalier::data {

enum class FinetuningTask { kRace, kMnli, kQqp };

struct TaskFacts {
  const char* name;        // upstream's: "RACE"
  int64_t num_classes;     // of which one is right; the options of a question are classes too
  int64_t num_rows;        // that one example is to the model: 4 where it compares options
  int64_t first_text_ids;  // to which the first text is cut; 0: no bound of its own
};
const TaskFacts& facts_of(FinetuningTask task);

struct TaskExample {
  std::vector<std::string> first;             // one for each row
  std::shared_ptr<const std::string> second;  // of all rows: options of one article share it
  int64_t label = 0;
  int64_t uid = 0;
};

struct TaskExamples {
  std::string name;  // of the set in messages and metrics
  std::vector<TaskExample> examples;
  bool has_labels = true;   // false: a test set, whose labels are placeholders
  int64_t num_skipped = 0;  // QQP: rows of another number of columns, or without a text
};

// As upstream: line ends and runs of blanks become one blank each; three times " . " becomes ". ".
std::string clean_task_text(std::string_view text);

// Of a file (MNLI, QQP), or of all *.txt of a folder by name (RACE). Adds what is wrong, with file and line; of one
// file no more than the first few. Where there was a problem the examples are not whole.
TaskExamples read_task_examples(FinetuningTask task, const std::string& path, Problems& problems);

}  // namespace espalier::data
