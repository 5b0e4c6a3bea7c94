// What a node more or less changes: the same copies of the model, as many as the nodes hold, and what is left over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/time/run_time.h"

namespace espalier::plan {

struct NodeChange {
  int64_t num_nodes = 0;
  int64_t data = 0;           // copies of the model, over tensor, context and pipeline ranks each
  int64_t spare_devices = 0;  // of these nodes, that no copy uses
  int64_t global_batch_size =
      0;  // that of the run, or the nearest that this many copies can divide (the larger of two)
  StepTime step;
  double seconds = 0;       // for the samples, all at that batch size
  double device_hours = 0;  // spare devices included
};

// In order: the run's own nodes, one more, one less, and as many as a copy more and a copy less take; none with less
// than one copy.
std::vector<NodeChange> node_changes(const RunShape& run, const Machine& machine, int64_t num_samples);

std::string node_change_text(const RunShape& run, const std::vector<NodeChange>& changes);

// The sizes of a growing batch with their steps and times; of many sizes some, the first and the last among them.
std::string timetable_text(const RunShape& run, const Machine& machine, const RunTime& time);

}  // namespace espalier::plan
