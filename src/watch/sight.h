// What a look into a run's folder finds that tells whether the run gains steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "report/run_reader.h"

namespace espalier::watch {

enum class LastWord { kNone, kStart, kStopped, kFinished, kFailed };  // of the run's own events

struct RunSight {
  std::filesystem::path folder;
  LastWord last_word = LastWord::kNone;
  std::string detail;        // of that event
  bool end_is_told = false;  // the launcher has delivered the alert that the run has ended
  bool has_died = false;     // the process on this machine that answers for the run is gone
  int64_t step = -1;         // the last that is recorded; -1: none
  int64_t starts = 0;        // recorded, of its ranks
  bool is_paused = false;    // by espalier ctl
  std::optional<int64_t> num_steps;
  double step_seconds = 0;  // median of the last ones; 0: not known
  int64_t newest_checkpoint = -1, checkpoint_bytes = 0, checkpoint_files = 0;
  // Another number whenever the run records or saves something.
  uint64_t life = 0;
  // Another number whenever there is an event, one of watch included, or a checkpoint.
  uint64_t story = 0;

  std::optional<double> seconds_left() const;  // of training, where it is known
};

// Never throws for what a run may leave behind: a folder that cannot be read is one without life.
RunSight see_run(const std::filesystem::path& folder);

// What the next event of the run says of it.
void read_event(const report::RunEvent& event, RunSight& sight);

// The name of what watch itself records as an event of the run: "watch: backup". No sign of the run's life.
std::string own_event(const std::string& what);

}  // namespace espalier::watch
