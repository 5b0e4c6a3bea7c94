// --save-hf: Hugging Face folders of a run's checkpoints, written while it continues: RUN/hf/step_00001000.
//
// `espalier checkpoint export-hf` makes each from the checkpoint on the disk, alongside the run (program_beside.h), so
// that training waits for none and a folder is what the same command makes later, byte for byte. A folder appears under
// its name when it is complete; what a kill has interrupted, or left to do, is done when the run continues. Only the
// first rank does anything.
#pragma once

#include <deque>
#include <filesystem>
#include <optional>
#include <set>
#include <vector>

#include "report/run_log.h"
#include "train/job.h"
#include "train/observer.h"
#include "train/program_beside.h"

namespace espalier::train {

class HfFolders : public Observer {
 public:
  // Both outlive it. Folders of steps beyond the one that the run continues from are set aside (*.superseded).
  HfFolders(Job& job, report::RunLog& log);

  void after_step(const report::StepReport& report) override;
  // Steps of checkpoints that are still to be read.
  std::vector<int64_t> steps_in_use() const { return {steps_.begin(), steps_.end()}; }
  // Also the last checkpoint becomes one. Waits for all.
  void at_end() override;

 private:
  bool is_on() const;
  void set_aside_later_ones() const;
  void add(int64_t step);
  void hear_of_saves();
  void poll();
  void start();
  void note_failure(const std::string& why);

  Job& job_;
  report::RunLog& log_;
  const std::filesystem::path folder_;
  ProgramBeside program_;
  std::deque<int64_t> steps_;     // to be made; the first is being made while the program runs
  std::set<int64_t> asked_;       // those, and the ones before
  std::optional<int64_t> heard_;  // the newest checkpoint that was looked at
};

}  // namespace espalier::train
