// A retriever that is finetuned: the biencoder of models/ict on questions and passages.
#pragma once

#include "families/ict_task/config.h"
#include "models/build.h"
#include "models/ict/model.h"

namespace espalier::models {

// Of samples of data::QuestionDataset.
tensor::Batch make_question_batch(const std::vector<SampleRow>& rows);

const FamilyRuntime& ict_task_runtime();

}  // namespace espalier::models
