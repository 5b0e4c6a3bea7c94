// Everything a run reports: to people (stderr), to files of the run folder, to TensorBoard.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "report/log_line.h"
#include "report/logging_config.h"
#include "report/metrics_file.h"
#include "report/step_report.h"
#include "report/tensorboard_tags.h"

namespace espalier::report {

class RunLog {
 public:
  // Opens metrics.jsonl and tensorboard/ in the folder, if there is one; TensorBoard files go to --tensorboard-dir
  // instead when that is given. Of several ranks only the first writes (`writes`). `folder`: --save, or empty. `table`:
  // the run's options, which TensorBoard shows.
  RunLog(const LoggingConfig& config, const std::string& folder, const OptionTable& table, int64_t num_ranks,
         int64_t first_step, bool writes);

  void step(const StepReport& report);
  // Prints the line of the steps since the last one, if any.
  void flush();
  struct Evaluated {
    std::string kind, when;  // "valid", "iteration 100"
    bool at_end = false;     // of training
  };
  void evaluation(const Evaluated& what, const std::vector<MetricsFile::SetLosses>& sets,
                  const TensorBoardLog::Position& at);
  // Of the checkpoint of that step, which may be older than the present one.
  void tasks(int64_t step, const std::vector<TaskFigure>& figures);
  // Metrics of whole held-out files after an epoch, to metrics.jsonl as "epoch".
  void epoch(int64_t step, const std::vector<MetricsFile::SetLosses>& sets);
  void event(const std::string& name, int64_t step, const std::string& detail);

 private:
  void show_live_line(const StepReport& report);
  void show_memory_once(const StepReport& report);

  LoggingConfig config_;
  std::string folder_;
  LogLine line_;
  std::string lr_phase_;  // of the last step
  bool writes_;
  std::optional<MetricsFile> metrics_;
  std::optional<TensorBoardLog> tensorboard_;
  double smoothed_seconds_ = 0;  // of a step, for the time left
  bool memory_shown_ = false;
};

// "[after dataloaders are built] datetime: 2026-01-31 17:27:38 "
std::string datetime_line(const std::string& what);

}  // namespace espalier::report
