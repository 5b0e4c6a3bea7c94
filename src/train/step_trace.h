// A trace of some steps (--profile-step-start, --profile-step-end) in Chrome's JSON format, which Perfetto opens.
//
// Records every ATen op, every autograd node and the parts of a step (RECORD_FUNCTION scopes), through libtorch's own
// profiler. One trace at a time in a process.
#pragma once

#include <filesystem>

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

}  // namespace espalier::train
