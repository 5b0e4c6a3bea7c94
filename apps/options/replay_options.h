// What `espalier replay` is asked, and what of the run's folder answers it: read by espalier, which refuses what cannot
// be, and by its engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "families/recorded_run.h"
#include "plan/layout.h"
#include "store/run_folder.h"

namespace espalier {

struct ReplayOptions {
  std::string load, layout, record, compare;
  int64_t step = 0;
  std::optional<int64_t> num_threads;
  bool json = false, overwrite = false;
  std::vector<std::string> more;  // options of train
};

// False when help was printed.
bool read_replay_options(const std::vector<std::string>& arguments, ReplayOptions& options, Problems& problems);

struct ReplayPlan {
  families::RecordedRun run;              // whose options and layout are those of the step
  std::optional<store::StepEntry> from;   // the newest checkpoint before the step; nothing: from the initialization
  std::optional<store::StepEntry> after;  // of the step itself
  plan::Layout layout;
  bool own_layout = false;             // that in which the run made the step
  bool is_exact = false;               // or one whose results have the same bits, by --canonical-reduction
  bool shared_memory = true;           // by what its ranks exchanged
  std::optional<int64_t> num_threads;  // of each rank of the run
};

// UserError where the step cannot be repeated, or not in the run's own layout on this machine.
ReplayPlan plan_replay(const ReplayOptions& options);

}  // namespace espalier
