// BERT finetuned for a task, as Megatron's tasks/main.py does: the encoder of families/bert, its pooler, and a head
// that chooses one class of a pair of sentences (MNLI, QQP), or one option of a question (RACE).
#pragma once

#include <string>
#include <vector>

#include "data/task_dataset.h"
#include "families/bert/config.h"
#include "families/task_run.h"

namespace espalier::families {

// What the options of a run fill (config::RunConfig::model).
struct BertTaskSettings : TaskRunSettings {
  BertSettings bert;
  data::FinetuningTask task = data::FinetuningTask::kMnli;
  std::string predictions;
};

const config::Family& bert_task_family();

// The encoder of a resolved run, with the run's vocabulary where that is known.
BertConfig bert_task_config(const config::RunConfig& run);

// What the head is called in checkpoints, as upstream; its outputs for one row.
const char* bert_task_head(data::FinetuningTask task);
int64_t bert_task_outputs(data::FinetuningTask task);

std::vector<spec::ParamSpec> bert_task_params(const BertConfig& config, data::FinetuningTask task);

// The files of one set, read; problems are added.
data::TaskSet read_training_set(const BertTaskSettings& settings, Problems& problems);
std::vector<data::TaskSet> read_valid_sets(const BertTaskSettings& settings, Problems& problems);

}  // namespace espalier::families
