// A retriever finetuned on questions, as Megatron's task RET-FINETUNE-NQ does: the biencoder of families/ict, which
// learns to tell the passage that answers a question from those of other questions and from hard ones of its own.
#pragma once

#include <string>
#include <vector>

#include "data/question_dataset.h"
#include "families/ict/config.h"
#include "families/task_run.h"

namespace espalier::families {

// What the options of a run fill (config::RunConfig::model).
struct IctTaskSettings : TaskRunSettings {
  BiencoderSettings biencoder;
  std::string task = "RET-FINETUNE-NQ", bert_load;
  std::optional<int64_t> retriever_seq_length, eval_micro_batch_size;
  bool train_with_neg = false;
  int64_t train_hard_neg = 0;                                     // passages beside the answer, with train_with_neg
  int64_t val_av_rank_hard_neg = 30, val_av_rank_other_neg = 30;  // of an evaluation

  int64_t num_hard_negatives() const { return train_with_neg ? train_hard_neg : 0; }
};

const config::Family& ict_task_family();

// How the samples of training, or of an evaluation, are made; the ids of the vocabulary are the caller's to add.
data::QuestionSampleOptions question_samples(const config::RunConfig& run, bool of_training);

// The files of a set, read; problems are added.
data::QuestionSet read_training_questions(const config::RunConfig& run, Problems& problems);
std::vector<data::QuestionSet> read_valid_questions(const config::RunConfig& run, Problems& problems);

}  // namespace espalier::families
