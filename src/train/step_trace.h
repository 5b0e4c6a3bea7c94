// A trace of some steps in Chrome's JSON format, which Perfetto opens: one slice per part of the step.
//
//   StepTrace trace;                       // records nothing until start()
//   { const auto slice = trace.slice("forward"); ... }
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace espalier::train {

class StepTrace {
 public:
  class Slice {
   public:
    Slice(StepTrace* trace, std::string name);
    ~Slice();
    Slice(const Slice&) = delete;
    Slice& operator=(const Slice&) = delete;

   private:
    StepTrace* trace_;
    std::string name_;
    int64_t begin_us_;
  };

  void start();
  // Writes what was recorded since start() and stops recording.
  void write(const std::filesystem::path& path);
  bool recording() const { return recording_; }
  Slice slice(const std::string& name) { return Slice(this, name); }

 private:
  friend class Slice;
  struct Event {
    std::string name;
    int64_t begin_us, duration_us;
  };
  int64_t now_us() const;
  bool recording_ = false;
  std::chrono::steady_clock::time_point origin_;
  std::vector<Event> events_;
};

}  // namespace espalier::train
