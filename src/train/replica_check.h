// Watches that ranks continue to hold equal what must be equal (--check-replicas, --check-replicas-policy): weights and
// optimizer state wherever several ranks hold them, and the run's counters everywhere.
//
// A difference is an alert (a warning of the first rank, and an event) that names what differs, on which ranks, and at
// which step. Then the run stops without a save, or the values that most ranks hold are copied to the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/replicas.h"
#include "report/run_log.h"
#include "train/job.h"
#include "train/observer.h"

namespace espalier::train {

class ReplicaCheck : public Observer {
 public:
  // Both outlive it.
  ReplicaCheck(Job& job, report::RunLog& log);

  // After each step: checks the first three, and every --check-replicas'th. UserError under the policy `stop`, on all
  // ranks. Called by all of them.
  void after_step(const report::StepReport& report) override;
  // Checks what is about to be saved, unless this step has been checked. Called by all ranks.
  void before_save() override;

 private:
  void check();
  void raise_alert(const std::vector<dist::CopyDifference>& differences, const std::string& consequence);

  Job& job_;
  report::RunLog& log_;
  // Counted here: a rank's own counter may be what is wrong, and all ranks must check after the same steps.
  int64_t step_;
  int64_t num_steps_ = 0;  // of this process
  bool checked_ = false;   // this step
};

// All that this rank holds and others hold as well. Tensors are the job's own; the run's numbers are copied into
// tensors of one element, by name.
std::vector<dist::Copy> replicated_state(Job& job);

}  // namespace espalier::train
