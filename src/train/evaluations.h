// When a run looks at its held-out sets: every --eval-interval steps, at its end, or alone.
#pragma once

#include <string>

#include "report/run_log.h"
#include "train/job.h"
#include "train/observer.h"

namespace espalier::train {

class Evaluations : public Observer {
 public:
  // Both outlive it.
  Evaluations(Job& job, report::RunLog& log) : job_(job), log_(log) {}

  void after_step(const report::StepReport& report) override;
  // After the last save: these read beyond the state that a longer run would continue from.
  void after_training();
  // --eval-only.
  void alone();

 private:
  enum class When { kDuring, kAtEnd };  // of training

  void evaluate_sets(const std::string& kind, const std::string& when, When moment);
  void evaluate_at_end(const std::string& kind);
  bool has_evaluated_at_end(const std::string& kind) const;

  Job& job_;
  report::RunLog& log_;
};

}  // namespace espalier::train
