// A trace of some steps (--profile-step-start, --profile-step-end) in Chrome's JSON format, which Perfetto opens.
//
// Records every ATen op, every autograd node and the parts of a step (RECORD_FUNCTION scopes), through libtorch's own
// profiler. One trace at a time in a process.
#pragma once

#include <filesystem>

#include "config/run_config.h"
#include "dist/grid.h"
#include "train/observer.h"

namespace espalier::train {

class StepTrace {
 public:
  ~StepTrace();  // drops what was recorded and not written
  void start();
  // Stops recording and writes the file.
  void write(const std::filesystem::path& path);
  bool recording() const { return recording_; }

 private:
  bool recording_ = false;
};

// Records the steps that --profile-step-start and --profile-step-end name, into logs/ of the run folder.
class Tracing : public Observer {
 public:
  Tracing(const config::RunConfig& config, const dist::Grid& grid) : config_(config), grid_(grid) {}
  void before_step(int64_t step) override;
  void after_step(const report::StepReport& report) override;

 private:
  const config::RunConfig& config_;
  const dist::Grid& grid_;
  StepTrace trace_;
};

}  // namespace espalier::train
