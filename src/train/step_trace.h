// Where the time of some steps goes (--profile, --profile-step-start, --profile-step-end): a table in the log, and a
// trace in Chrome's JSON format, which Perfetto opens.
//
// The trace has every ATen op, every autograd node, the parts of a step and the spans of base/work_profile.h, on a GPU
// its kernels and copies as well, recorded by libtorch's own profiler. One trace at a time in a process.
#pragma once

#include <filesystem>
#include <memory>

#include "base/work_profile.h"
#include "config/run_config.h"
#include "dist/grid.h"
#include "train/observer.h"

namespace espalier::train {

class StepTrace {
 public:
  ~StepTrace();  // drops what was recorded and not written
  void start(c10::Device device);
  // Stops recording and writes the file.
  void write(const std::filesystem::path& path);
  bool recording() const { return recording_; }

 private:
  bool recording_ = false;
};

// Records the steps that --profile-step-start and --profile-step-end name: a table into the log of the first rank, and
// of every rank trace_step_N.json and profile_step_N.json (train/step_profile.h) into logs/ of the run folder.
class Tracing : public Observer {
 public:
  Tracing(const config::RunConfig& config, const dist::Grid& grid);
  ~Tracing() override;
  void before_step(int64_t step) override;
  void after_step(const report::StepReport& report) override;

 private:
  const config::RunConfig& config_;
  const dist::Grid& grid_;
  StepTrace trace_;
  std::unique_ptr<WorkProfile::Listener> spans_;  // into the trace
  std::unique_ptr<WorkProfile::Timer> timer_;     // of the device; nullptr on the CPU
  WorkProfile profile_;
};

}  // namespace espalier::train
