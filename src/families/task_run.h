// What all tasks with files of their own, read in epochs, have in common: rows, checks, and the length that the
// epochs make.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/options.h"
#include "config/run_config.h"
#include "data/epoch_order.h"

namespace espalier::config {
class Resolving;
}

namespace espalier::families {

struct TaskRunSettings {
  std::vector<std::string> train_data, valid_data;
  int64_t epochs = 3;
  bool keep_last = false;
  std::string pretrained_checkpoint;
};

// How a task's rows speak of it.
struct TaskWords {
  const char* train_data;             // "files of the task to train on; of RACE, folders of *.txt"
  const char* pretrained_checkpoint;  // "BERT to begin with"
};
void add_task_run_rows(OptionTable& table, TaskRunSettings& settings, const TaskWords& words);

// `files`: "files of MNLI". Whether they can be read is checked beside the data.
void check_task_run(const config::Resolving& resolving, const TaskRunSettings& settings, const std::string& files);

data::TaskEpochs training_epochs(const config::RunConfig& run, const TaskRunSettings& settings);

// Sets the length of the run; `count_examples` says how many there are to train on, 0 where they cannot be read: then
// it stays open. A run of zero epochs evaluates.
void resolve_task_run(config::RunConfig& run, const OptionTable& table, const TaskRunSettings& settings,
                      const std::function<int64_t()>& count_examples, Problems& problems);

}  // namespace espalier::families
