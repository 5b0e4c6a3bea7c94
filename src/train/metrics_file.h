// metrics.jsonl and events.jsonl of a run folder: one JSON object a line, flushed at once.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "train/step_report.h"

namespace espalier::train {

class MetricsFile {
 public:
  // Appends to <run folder>/metrics.jsonl.
  explicit MetricsFile(const std::filesystem::path& run_folder);
  void step(const StepReport& report);
  // {"step": N, "valid": {name: {"lm_loss": x, "ppl": y}}}; `kind` is "valid" or "test".
  struct SetLosses {
    std::string name;
    std::vector<NamedLoss> losses;
  };
  void evaluation(int64_t step, const std::string& kind, const std::vector<SetLosses>& sets);

 private:
  void line(const std::string& text);
  std::ofstream file_;
  std::string path_;
};

// Appends {"time", "event", "step", "detail"} to <run folder>/events.jsonl: starts, saves, alerts, stops.
void record_event(const std::filesystem::path& run_folder, const std::string& event, int64_t step,
                  const std::string& detail);

}  // namespace espalier::train
