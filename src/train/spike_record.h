// What a step was made of whose loss or norm was beyond those before it (--skip-step-sigma), or was not finite: an
// event "spike", and the documents of its samples in spikes/step_N.txt of the run folder. A norm that is not finite is
// recorded likewise, but is no spike to --spike-policy.
//
// What --spike-policy asks for then is done by the loop, which hears of each spike on all ranks.
//
// espalier data who says the same as long as the token files exist; the file stays. Of steps in a row the first
// three are recorded: a run that has diverged has no better documents.
#pragma once

#include <cstdint>
#include <functional>

#include "report/run_log.h"
#include "report/step_report.h"
#include "train/job.h"
#include "train/observer.h"

namespace espalier::train {

class SpikeRecord : public Observer {
 public:
  using OnSpike = std::function<void(const report::StepReport&)>;
  // Job and log outlive it. `on_spike` is called on all ranks alike.
  SpikeRecord(Job& job, report::RunLog& log, OnSpike on_spike) : job_(job), log_(log), on_spike_(std::move(on_spike)) {}
  // The first rank writes, without the others. A folder that cannot be written to is a warning.
  void after_step(const report::StepReport& report) override;
  // In the run folder, with the documents of the last step; empty where they are not recorded, and on other ranks.
  const std::string& file() const { return file_; }

 private:
  void record(const report::StepReport& report);
  // The name of the file; empty where the data set does not name documents, or the file was not written.
  std::string write_documents(const report::StepReport& report);

  Job& job_;
  report::RunLog& log_;
  const OnSpike on_spike_;
  int64_t num_in_a_row_ = 0;
  std::string file_;
};

}  // namespace espalier::train
