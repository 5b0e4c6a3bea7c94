// Checkpoints of a run in spite of a disk that fails now and then: a save that fails is reported loudly and tried
// again, and only a run that ends without its last one has failed.
//
// Collective: all ranks call these methods alike, and decide alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "report/run_log.h"
#include "train/job.h"
#include "train/observer.h"

namespace espalier::train {

class Saving : public Observer {
 public:
  // Where the run goes on from memory, and a save that was due before is not complete, one is due at once.
  Saving(Job& job, report::RunLog& log);

  // Hears of saves that have ended in the background.
  void after_step(const report::StepReport& report) override;
  // By --save-interval, at the end of an epoch, or because a save failed or the run folder was removed.
  bool due(int64_t step) const;
  void save();
  // Instead of save(): the present state is not one to continue from. A save is due again after the next step.
  void put_off();
  // Saves, waits until every rank has written, and tries again a few times. UserError (kInputOutput) when the last save
  // failed.
  void save_at_end();
  // The folder of --save was removed and recreated (on any rank): its checkpoints are gone.
  void forget_saved();

  // Waits until no rank writes any more; a rank that dies meanwhile is an error of kLostPeer within seconds.
  void settle();

 private:
  int64_t last_due(int64_t step) const;
  void hear();
  void note_failure(const std::string& reason);
  void agree_on_failure();

  Job& job_;
  report::RunLog& log_;
  bool writing_ = false;                // the same on all ranks: a save that was started is not known to have ended
  std::optional<std::string> failure_;  // of the last save, on this rank
  std::optional<int64_t> retry_step_;   // the same on all ranks
};

}  // namespace espalier::train
