// How many examples of each held-out file a model that chooses between classes gets right: every one of them, after
// each epoch, whatever the layout.
#pragma once

#include <cstdint>
#include <string>

#include "report/run_log.h"
#include "train/job.h"
#include "train/observer.h"

namespace espalier::train {

class TaskMetrics : public Observer {
 public:
  // Both outlive it. Does nothing for models that choose nothing.
  TaskMetrics(Job& job, report::RunLog& log) : job_(job), log_(log) {}

  void after_step(const report::StepReport& report) override;
  // --epochs 0. False where the model chooses nothing.
  bool alone();

 private:
  bool is_on() const;
  void score(int64_t epoch);

  Job& job_;
  report::RunLog& log_;
};

}  // namespace espalier::train
