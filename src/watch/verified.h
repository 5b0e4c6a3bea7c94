// Checkpoints that are read back now and then, since a disk may lose what it once held: which is next, and what was
// found.
//
// RUN/watch/verified.json has for each step when it was last read and what was wrong with it. A step that was never
// read counts from when it was written. What was found holds as long as the folder is there and no file of it is newer.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "store/run_folder.h"
#include "watch/judge.h"

namespace espalier::watch {

double wall_clock();  // seconds since 1970, as the files of a run have their times

struct NextToVerify {
  store::StepEntry entry;
  double last = 0;  // seconds since 1970, when it was read or written; 0: at once, as it was damaged and has changed
};

// Of the complete steps of the run the one that was read or written longest ago. Nothing where there is none, or the
// folder cannot be read now.
std::optional<NextToVerify> next_to_verify(const std::filesystem::path& run_folder);

// Whether that is longer ago than `interval_seconds`. A time in the future is a clock that was wrong.
bool is_due(const NextToVerify& next, double interval_seconds, double now);

// Notes what reading a step that began at `time` has found. False, and nothing is noted, where the step has been
// removed or replaced since then.
bool note_verified(const std::filesystem::path& run_folder, const store::StepEntry& entry, double time,
                   const std::vector<std::string>& problems);

// An incident for each step that is damaged: "damaged checkpoint: step_00000004". Tells where its copies are.
std::vector<Trouble> damaged_checkpoints(const std::filesystem::path& run_folder);

}  // namespace espalier::watch
