// --save-keep-last, --save-keep-every, --save-keep-epochs: a run's older checkpoints are removed while it continues.
//
// `espalier checkpoint prune` does it alongside the run (program_beside.h) after each save. It first reads the newest
// checkpoint from the disk and compares its checksums: where that is damaged nothing is removed, and an event says so.
// Checkpoints that other programs alongside the run still read are kept until they are done with. Only the first rank
// does anything.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "report/run_log.h"
#include "train/job.h"
#include "train/observer.h"
#include "train/program_beside.h"

namespace espalier::train {

class Retention : public Observer {
 public:
  // Both outlive it. `in_use`: steps that must not go yet.
  Retention(Job& job, report::RunLog& log, std::function<std::vector<int64_t>()> in_use);

  void after_step(const report::StepReport& report) override;
  // To be called after those that use checkpoints. Waits for it.
  void at_end() override;

 private:
  bool is_on() const;
  void start();
  void poll();
  void note_failure(const std::string& why);
  std::filesystem::path file(const char* ending) const;

  Job& job_;
  report::RunLog& log_;
  const std::function<std::vector<int64_t>()> in_use_;
  ProgramBeside program_;
  std::vector<int64_t> going_;       // the steps that the program may remove while it runs
  std::optional<int64_t> done_for_;  // the newest checkpoint when it was last started, and what was in use then
  std::vector<int64_t> kept_back_;
};

}  // namespace espalier::train
