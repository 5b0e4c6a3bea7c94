// --save-keep-epochs: an event "epoch" for each step at which a pass over the training data ends. Retention keeps the
// first checkpoint at or after it, and so does `espalier checkpoint prune --keep-epochs`.
#pragma once

#include <cstdint>

#include "report/run_log.h"
#include "train/job.h"
#include "train/observer.h"

namespace espalier::train {

class EpochEnds : public Observer {
 public:
  // Both outlive it. Records the ends that a run passed before it had the option, by its metrics.jsonl. A UserError
  // where the option is given and the data do not say how long a pass is, or where checkpoints are of passes whose ends
  // nothing tells: they would be removed.
  EpochEnds(Job& job, report::RunLog& log);
  void after_step(const report::StepReport& report) override;

 private:
  bool is_on() const { return samples_per_epoch_ > 0; }
  void record(int64_t epoch, int64_t step) const;
  void record_earlier() const;

  Job& job_;
  report::RunLog& log_;
  int64_t samples_per_epoch_ = 0;  // 0: nothing to do
  int64_t epochs_before_ = 0;      // that had ended before the next step
};

}  // namespace espalier::train
