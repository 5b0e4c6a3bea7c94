// What a run folder records about its run: configuration, events, metrics, checkpoints. Reads only, also while it
// trains.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier::report {

struct RunEvent {
  double time = 0;  // seconds since 1970
  std::string event, detail;
  int64_t step = 0;
  bool is_late = false;  // written later than it was recorded
};

enum class RunStatus {
  kEmpty,     // nothing was recorded yet
  kRunning,   // a process of this machine holds the folder's lock, or the records changed a moment ago
  kFinished,  // all steps are done
  kStopped,   // saved and left, as it was asked to
  kFailed,    // ended by an error that it recorded
  kDied,      // neither: killed, or its machine went down
};
const char* to_string(RunStatus status);

struct Run {
  std::filesystem::path folder;
  RunStatus status = RunStatus::kEmpty;
  std::string status_detail;                   // of the last event: "SIGTERM", "all steps done"
  std::map<std::string, std::string> options;  // config.toml: key -> value as it is there
  std::vector<RunEvent> events;
  std::vector<int64_t> checkpoints;        // complete ones, rising
  std::optional<int64_t> num_steps;        // of the whole run
  std::optional<double> started, changed;  // seconds since 1970
};

// A folder with config.toml, metrics.jsonl, events.jsonl or step folders.
bool is_run_folder(const std::filesystem::path& folder);

// Run folders among `folders` and in them, at most `depth` folders further down, in the order of their names. A
// UserError where one of `folders` is not there.
std::vector<std::filesystem::path> find_runs(const std::vector<std::string>& folders, int depth = 2);

// "": a run's. Otherwise what is there instead, and which runs are in it or around it.
std::string describe_no_run(const std::filesystem::path& folder);

// A UserError (missing input) for a folder that is none of a run.
Run read_run(const std::filesystem::path& folder);

}  // namespace espalier::report
