// Megatron-DeepSpeed's TensorBoard tags: users have dashboards for them. Each scalar appears with the step as x, and
// with " vs samples" and " vs tokens".
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "report/logging_config.h"
#include "report/step_report.h"
#include "report/tensorboard.h"

namespace espalier::report {

class TensorBoardLog {
 public:
  TensorBoardLog(const std::filesystem::path& directory, const LoggingConfig& config);
  // Marks a start of that many ranks and lists the options: every (name, value) as text.
  void start(int64_t step, int64_t num_ranks, const std::vector<std::pair<std::string, std::string>>& options);
  void step(const StepReport& report);
  // Where an evaluation is plotted: x values of its three curves.
  struct Position {
    int64_t step = 0, consumed_samples = 0, consumed_tokens = 0;
  };
  void evaluation(const std::string& set_name, const std::vector<NamedLoss>& losses, const Position& at);

 private:
  void three(const std::string& tag, double value, const Position& at);
  void timing(const StepReport& report, const Position& at);
  TensorBoardWriter writer_;
  LoggingConfig config_;
};

}  // namespace espalier::report
