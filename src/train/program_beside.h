// One of our programs alongside a run: on the first rank's machine, at the lowest priority, in a process of its own, so
// that training computes what it computes without it, to the bit.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/worker_group.h"

namespace espalier::train {

class ProgramBeside {
 public:
  ProgramBeside() = default;
  ~ProgramBeside() { stop(); }
  ProgramBeside(const ProgramBeside&) = delete;
  ProgramBeside& operator=(const ProgramBeside&) = delete;

  // `espalier WORDS...`, one at a time. What it prints goes to `output`, its log to `log`, whose folders exist.
  // Exceptions of the file system, and a UserError where the program cannot be started.
  void start(std::vector<std::string> words, const std::filesystem::path& output, const std::filesystem::path& log);
  bool is_running() const { return running_ != nullptr; }
  // Nothing while it runs, or where nothing does; the exit code of what has ended since, once.
  std::optional<int> take_exit_code();
  // Asks it to end, and soon makes it.
  void stop();

 private:
  std::unique_ptr<launch::WorkerGroup> running_;
};

}  // namespace espalier::train
