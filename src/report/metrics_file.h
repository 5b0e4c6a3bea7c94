// metrics.jsonl of a run folder: one JSON object a line, flushed at once. A line that cannot be written is reported and
// does not end the run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/appended_file.h"
#include "report/step_report.h"

namespace espalier::report {

// What an evaluation found of one task.
struct TaskFigure {
  std::string task, metric;
  double value = 0;
};

class MetricsFile {
 public:
  // Appends to <run folder>/metrics.jsonl.
  explicit MetricsFile(const std::filesystem::path& run_folder);
  void step(const StepReport& report);
  // {"step": N, "valid": {name: {"lm_loss": x, "ppl": y}}}, ppl of the first loss, "bits_per_byte" where it is known;
  // `kind` is "valid", "test" or "epoch". Of the evaluations at the end of training also "end": true.
  struct SetLosses {
    std::string name;
    std::vector<NamedLoss> losses;
  };
  // {"step": N, "tasks": {task: {metric: value}}}; NaN: null.
  void tasks(int64_t step, const std::vector<TaskFigure>& figures);
  void evaluation(int64_t step, const std::string& kind, const std::vector<SetLosses>& sets, bool at_end = false);

 private:
  AppendedFile file_;
};

// The line of a step, without its end.
std::string step_record(const StepReport& report);

// Whether <run folder>/metrics.jsonl has the evaluation of this kind at the end of training at this step.
bool has_last_evaluation(const std::filesystem::path& run_folder, int64_t step, const std::string& kind);

}  // namespace espalier::report
