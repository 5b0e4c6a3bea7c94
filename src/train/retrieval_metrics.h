// How well a retriever finds the passage that answers each question of the held-out files, among those of other
// questions and hard ones of its own: every question, after each epoch, the same in every layout.
#pragma once

#include <cstdint>

#include "report/run_log.h"
#include "train/job.h"
#include "train/observer.h"

namespace espalier::train {

class RetrievalMetrics : public Observer {
 public:
  // Both outlive it. Does nothing for models that find nothing.
  RetrievalMetrics(Job& job, report::RunLog& log) : job_(job), log_(log) {}

  void after_step(const report::StepReport& report) override;
  // --epochs 0. False where the model finds nothing.
  bool alone();

 private:
  bool is_on() const;
  void score(int64_t epoch);

  Job& job_;
  report::RunLog& log_;
};

}  // namespace espalier::train
