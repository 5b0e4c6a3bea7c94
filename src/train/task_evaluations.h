// --eval-tasks: `espalier eval` evaluates each saved checkpoint, in a process of its own alongside the run.
//
// So training computes what it computes without it, to the bit, and the figures are those that `espalier eval --load`
// gives of that checkpoint. One evaluation runs at a time, of the newest checkpoint; those that are saved meanwhile are
// skipped, except for the last. Only the first rank does anything, and none waits for it before the run's end.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "report/run_log.h"
#include "train/job.h"
#include "train/observer.h"
#include "train/program_beside.h"

namespace espalier::train {

class TaskEvaluations : public Observer {
 public:
  // Both outlive it. An evaluation that still runs is killed with it.
  TaskEvaluations(Job& job, report::RunLog& log);

  void after_step(const report::StepReport& report) override;
  // Of the checkpoint that is being asked.
  std::vector<int64_t> steps_in_use() const {
    return program_.is_running() ? std::vector<int64_t>{*step_} : std::vector<int64_t>{};
  }
  // Waits for the evaluation of the last checkpoint.
  void at_end() override;

 private:
  void start(int64_t step);
  void poll();
  void record();
  void fail(const std::string& why);
  std::filesystem::path file(const char* ending) const;  // of the evaluation: <run>/evaluations/step_00001000<ending>

  Job& job_;
  report::RunLog& log_;
  ProgramBeside program_;
  std::chrono::steady_clock::time_point deadline_;
  std::optional<int64_t> step_;  // of the newest checkpoint that was asked, or is being asked
};

}  // namespace espalier::train
