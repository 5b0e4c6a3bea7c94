// What watches a run. The loop calls its observers in the order of its list (before a save in the opposite one), on all
// ranks alike; what one throws ends
// the run on all of them.
#pragma once

#include <cstdint>

#include "report/step_report.h"

namespace espalier::train {

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void before_step(int64_t /*step*/) {}
  virtual void after_step(const report::StepReport& /*report*/) {}
  // The present state is about to be saved.
  virtual void before_save() {}
  // All steps are done and everything is saved.
  virtual void at_end() {}
};

}  // namespace espalier::train
